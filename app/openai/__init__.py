"""The OpenAI routes. Start at `serving` (one request's way), then `choice` and `chunks` (tokens to bytes)."""
