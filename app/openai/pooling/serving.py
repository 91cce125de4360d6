"""Embeddings, rerank and score: each text is a request without output, so the engine times its prefill."""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import orjson
from msgspec import Struct

from app.errors import bad_request
from app.openai.answer import WholeAnswer, usage_of
from app.openai.choice import ChoiceRun
from app.openai.completion.prompts import parse_prompts
from app.openai.pooling.protocol import (
    EmbeddingRequest,
    RerankRequest,
    ScoreRequest,
    embedding_decoder,
    rerank_decoder,
    score_decoder,
)
from app.openai.pooling.vectors import DIMENSIONS, similarity, unit_vector
from app.openai.prompt_tokens import conversation_tokens, last_tokens
from app.openai.protocol import decode_body
from app.openai.serving import (
    Incoming,
    Launch,
    engine_request_id,
    launch,
    plan_limit,
    submit_context,
    tokenised,
)
from app.state import AppState
from app.stream_response import HotResponse

_MOST_INPUTS = 2048
# To make a vector takes as long as to tokenise a text of about this length.
_VECTOR_AS_CHARS = 2000

T = TypeVar("T")


class _Pooled(Struct, frozen=True):
    """What a pooling request needs of the engine. `param` names the texts in errors."""

    prompts: list[list[int]]
    param: str
    request_id: str
    priority: int


async def start_embeddings(state: AppState, incoming: Incoming, response: HotResponse) -> None:
    """One vector per input."""
    request = decode_body(embedding_decoder, incoming.body)
    model = state.models.resolve(request.model)
    dimensions = DIMENSIONS if request.dimensions is None else request.dimensions
    if not 1 <= dimensions <= DIMENSIONS:
        raise bad_request(f"dimensions is {dimensions}; it must be between 1 and {DIMENSIONS}.", "dimensions")
    prompts = await _embedding_prompts(state, request, len(incoming.body))
    ident = f"embd-{request.request_id or incoming.request_id}"
    shown = _packed if request.encoding_format == "base64" else _written
    vectors = await _computed(lambda: [shown(unit_vector(prompt, dimensions)) for prompt in prompts], prompts)

    def body(usage: dict[str, int]) -> dict[str, Any]:
        data = [{"object": "embedding", "index": at, "embedding": item} for at, item in enumerate(vectors)]
        return _listed(ident, model, data, usage)

    pooled = _Pooled(_cut(prompts, request.truncate_prompt_tokens), "input", ident, request.priority or 0)
    _launch(state, incoming, response, pooled, body)


async def start_rerank(state: AppState, incoming: Incoming, response: HotResponse) -> None:
    """Documents in order of their likeness to the query."""
    request = decode_body(rerank_decoder, incoming.body)
    model = state.models.resolve(request.model)
    documents = _documents(request)
    top_n = request.top_n or len(documents)
    if top_n < 0:
        raise bad_request(f"top_n is {top_n}; it must be at least 0 (0: all).", "top_n")
    ident = f"rerank-{request.request_id or incoming.request_id}"
    query = await _encode(state, request.query)
    texts = [await _encode(state, document) for document in documents]
    scores = await _computed(lambda: _scores(query, texts), texts)

    def body(usage: dict[str, int]) -> dict[str, Any]:
        order = sorted(range(len(texts)), key=lambda at: -scores[at])[:top_n]
        results = [
            {"index": at, "document": {"text": documents[at]}, "relevance_score": scores[at]} for at in order
        ]
        return {"id": ident, "model": model, "usage": usage, "results": results}

    prompts = _cut([query + text for text in texts], request.truncate_prompt_tokens)
    _launch(state, incoming, response, _Pooled(prompts, "documents", ident, request.priority or 0), body)


async def start_score(state: AppState, incoming: Incoming, response: HotResponse) -> None:
    """The likeness of pairs of texts."""
    request = decode_body(score_decoder, incoming.body)
    model = state.models.resolve(request.model)
    pairs = _pairs(request)
    ident = f"score-{request.request_id or incoming.request_id}"
    encoded = [(await _encode(state, first), await _encode(state, second)) for first, second in pairs]
    joined = [first + second for first, second in encoded]
    scores = await _computed(lambda: [_scores(first, [second])[0] for first, second in encoded], joined)

    def body(usage: dict[str, int]) -> dict[str, Any]:
        data = [{"index": at, "object": "score", "score": score} for at, score in enumerate(scores)]
        return _listed(ident, model, data, usage)

    prompts = _cut(joined, request.truncate_prompt_tokens)
    _launch(state, incoming, response, _Pooled(prompts, "documents", ident, request.priority or 0), body)


def _launch(
    state: AppState,
    incoming: Incoming,
    response: HotResponse,
    pooled: _Pooled,
    body: Callable[[dict[str, int]], dict[str, Any]],
) -> None:
    """Let the engine read every prompt; then `body` makes the answer."""

    def build(runs: Sequence[ChoiceRun]) -> dict[str, Any]:
        tokens = usage_of(runs, details=False)["prompt_tokens"]
        return body({"prompt_tokens": tokens, "total_tokens": tokens})

    context = submit_context(incoming, None, state.engine.args.dp_size)
    answer = WholeAnswer(state, response, build)
    total = len(pooled.prompts)
    launches = []
    for at, prompt in enumerate(pooled.prompts):
        plan_limit(state, len(prompt), None, pooled.param)
        run = ChoiceRun(answer, engine_request_id(state, pooled.request_id, at, total), at, None, len(prompt))
        run.prompt_index = at
        launches.append(Launch(run, prompt))
    launch(state, answer, launches, pooled.priority, context)


async def _embedding_prompts(state: AppState, request: EmbeddingRequest, text_chars: int) -> list[list[int]]:
    if request.messages is not None and request.input is None:
        return [await conversation_tokens(state, request.messages, text_chars)]
    prompts = parse_prompts(request.input, "input")
    _check_count("input", prompts)
    return [
        await _encode(state, prompt.text or "") if prompt.token_ids is None else prompt.token_ids
        for prompt in prompts
    ]


def _documents(request: RerankRequest) -> list[str]:
    if not request.query:
        raise bad_request("query is empty; send some text.", "query")
    _check_count("documents", request.documents)
    found = []
    for at, item in enumerate(request.documents):
        text = item.get("text") if isinstance(item, dict) else item
        if not isinstance(text, str) or not text:
            raise bad_request(
                f"documents.{at} must be a text that is not empty, or an object with one under text.",
                f"documents.{at}",
            )
        found.append(text)
    return found


def _pairs(request: ScoreRequest) -> list[tuple[str, str]]:
    first = _texts("queries", request.queries if request.queries is not None else request.text_1)
    second = _texts("documents", request.documents if request.documents is not None else request.text_2)
    if len(first) == 1:
        first = first * len(second)
    if len(first) != len(second):
        raise bad_request(
            f"There are {len(first)} queries for {len(second)} documents; send one query or as many as "
            "documents.",
            "queries",
        )
    return list(zip(first, second, strict=True))


def _texts(name: str, value: str | list[str] | None) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not texts or "" in texts:
        raise bad_request(f"{name} must be a text or a list of texts, none of them empty.", name)
    _check_count(name, texts)
    return texts


def _check_count(name: str, items: Sequence[object]) -> None:
    if not 1 <= len(items) <= _MOST_INPUTS:
        raise bad_request(f"{name} has {len(items)} entries; it must have 1 to {_MOST_INPUTS}.", name)


async def _encode(state: AppState, text: str) -> list[int]:
    return await tokenised(lambda: state.tokenizer.encode(text), len(text))


async def _computed(work: Callable[[], list[T]], prompts: Sequence[Sequence[int]]) -> list[T]:
    """`work` over the vectors of these prompts, before the engine is asked; many in a thread."""
    return await tokenised(work, sum(_VECTOR_AS_CHARS + len(prompt) for prompt in prompts))


def _cut(prompts: list[list[int]], keep: int | None) -> list[list[int]]:
    return [last_tokens(prompt, keep) for prompt in prompts]


def _scores(query: list[int], documents: Sequence[list[int]]) -> list[float]:
    asked = unit_vector(query)
    return [similarity(asked, unit_vector(document)) for document in documents]


def _listed(ident: str, model: str, data: list[Any], usage: dict[str, int]) -> dict[str, Any]:
    return {
        "id": ident,
        "object": "list",
        "created": int(time.time()),
        "model": model,
        "data": data,
        "usage": usage,
    }


def _written(vector: Sequence[float]) -> orjson.Fragment:
    """As JSON already: thousands of numbers are not written while streams wait."""
    return orjson.Fragment(orjson.dumps(vector))


def _packed(vector: Sequence[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
