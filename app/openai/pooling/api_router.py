"""The hot routes of embeddings, rerank, score and moderations, under all their paths."""

from __future__ import annotations

from app.openai.pooling.moderation import start_moderation
from app.openai.pooling.protocol import (
    EmbeddingRequest,
    EmbeddingResponse,
    ModerationRequest,
    ModerationResponse,
    RerankRequest,
    RerankResponse,
    ScoreRequest,
    ScoreResponse,
)
from app.openai.pooling.serving import start_embeddings, start_rerank, start_score
from app.routes import HotRoute

_USAGE = {"prompt_tokens": 4, "total_tokens": 4}

hot_routes = [
    HotRoute(
        path="/v1/embeddings",
        name="create_embedding",
        summary="Deterministic unit vectors of texts or token ids",
        tag="OpenAI",
        start=start_embeddings,
        request=EmbeddingRequest,
        response=EmbeddingResponse,
        request_example={"input": ["A text", "Another one"], "dimensions": 3},
        response_example={
            "id": "embd-1",
            "object": "list",
            "created": 1700000000,
            "model": "mocker",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.6, 0.0, -0.8]}],
            "usage": _USAGE,
        },
    ),
    *(
        HotRoute(
            path=path,
            name=f"rerank{number}",
            summary="Documents in order of their likeness to a query",
            tag="vLLM",
            start=start_rerank,
            request=RerankRequest,
            response=RerankResponse,
            request_example={"query": "red apples", "documents": ["apples are red", "the sea"]},
            response_example={
                "id": "rerank-1",
                "model": "mocker",
                "usage": _USAGE,
                "results": [{"index": 0, "document": {"text": "apples are red"}, "relevance_score": 0.8}],
            },
        )
        for number, path in (("", "/v1/rerank"), ("_v2", "/v2/rerank"), ("_short", "/rerank"))
    ),
    *(
        HotRoute(
            path=path,
            name=f"score{number}",
            summary="The likeness of pairs of texts, from 0 to 1",
            tag="vLLM",
            start=start_score,
            request=ScoreRequest,
            response=ScoreResponse,
            request_example={"queries": "red apples", "documents": ["apples are red", "the sea"]},
            response_example={
                "id": "score-1",
                "object": "list",
                "created": 1700000000,
                "model": "mocker",
                "data": [{"index": 0, "object": "score", "score": 0.8}],
                "usage": _USAGE,
            },
        )
        for number, path in (("", "/v1/score"), ("_short", "/score"))
    ),
    HotRoute(
        path="/v1/moderations",
        name="create_moderation",
        summary="Flags by a few words; any model name is accepted",
        tag="OpenAI",
        start=start_moderation,
        request=ModerationRequest,
        response=ModerationResponse,
        request_example={"input": "I love you."},
    ),
]
