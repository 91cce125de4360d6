"""Shapes of /v1/embeddings, /v1/rerank and /v1/score, as vLLM has them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType


class PoolingUsage(Struct):
    prompt_tokens: int
    total_tokens: int


class EmbeddingRequest(Struct, kw_only=True):
    """`input`: text, texts, token ids, or lists of token ids; or vLLM's `messages` instead."""

    input: str | list[Any] | None = None
    messages: list[dict[str, Any]] | None = None
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    user: str | None = None
    truncate_prompt_tokens: int | None = None
    add_special_tokens: bool | None = None
    priority: int | None = None
    request_id: str | None = None


class Embedding(Struct):
    """`embedding`: numbers, or the base64 of little-endian 32-bit floats."""

    index: int
    embedding: list[float] | str
    object: Literal["embedding"] = "embedding"


class EmbeddingResponse(Struct):
    id: str
    created: int
    model: str
    data: list[Embedding]
    usage: PoolingUsage
    object: Literal["list"] = "list"


class RerankRequest(Struct, kw_only=True):
    """`documents`: texts, or objects with a `text`. top_n 0 or none: all of them."""

    query: str
    documents: list[Any]
    model: str | None = None
    top_n: int | None = None
    truncate_prompt_tokens: int | None = None
    priority: int | None = None
    request_id: str | None = None
    user: str | None = None


class RerankDocument(Struct):
    text: str


class RerankResult(Struct):
    index: int
    document: RerankDocument
    relevance_score: float


class RerankResponse(Struct):
    """Best first."""

    id: str
    model: str
    usage: PoolingUsage
    results: list[RerankResult]


class ScoreRequest(Struct, kw_only=True):
    """One query against many documents, or as many queries as documents; both names of each field."""

    queries: str | list[str] | None = None
    documents: str | list[str] | None = None
    text_1: str | list[str] | None = None
    text_2: str | list[str] | None = None
    model: str | None = None
    truncate_prompt_tokens: int | None = None
    priority: int | None = None
    request_id: str | None = None
    user: str | None = None


class ScoreData(Struct):
    index: int
    score: float
    object: Literal["score"] = "score"


class ScoreResponse(Struct):
    id: str
    created: int
    model: str
    data: list[ScoreData]
    usage: PoolingUsage
    object: Literal["list"] = "list"


class ModerationRequest(Struct, kw_only=True):
    """`input`: a text, texts, or parts (text and image_url)."""

    input: str | list[Any]
    model: str | None = None


class ModerationResult(Struct):
    flagged: bool
    categories: dict[str, bool]
    category_scores: dict[str, float]
    category_applied_input_types: dict[str, list[str]] | UnsetType = UNSET


class ModerationResponse(Struct):
    id: str
    model: str
    results: list[ModerationResult]


embedding_decoder = msgspec.json.Decoder(EmbeddingRequest)
rerank_decoder = msgspec.json.Decoder(RerankRequest)
score_decoder = msgspec.json.Decoder(ScoreRequest)
moderation_decoder = msgspec.json.Decoder(ModerationRequest)
