"""Routes that read a prompt and say no text: embeddings, rerank, score."""
