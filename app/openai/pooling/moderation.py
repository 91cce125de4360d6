"""POST /v1/moderations: flags by a few words, so that both outcomes can be had. No model stands behind it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from random import Random
from typing import Any

import orjson

from app.errors import bad_request
from app.openai.answer import JSON_HEADERS
from app.openai.pooling.protocol import moderation_decoder
from app.openai.protocol import decode_body
from app.openai.serving import Incoming
from app.state import AppState
from app.stream_response import HotResponse

_DEFAULT_MODEL = "omni-moderation-latest"
_CATEGORIES = (
    "harassment",
    "harassment/threatening",
    "hate",
    "hate/threatening",
    "illicit",
    "illicit/violent",
    "self-harm",
    "self-harm/instructions",
    "self-harm/intent",
    "sexual",
    "sexual/minors",
    "violence",
    "violence/graphic",
)
# A category whose word is in the text is flagged.
_WORDS = {
    "harassment": ("stupid", "idiot"),
    "hate": ("hate",),
    "illicit": ("steal", "drugs"),
    "self-harm": ("suicide",),
    "sexual": ("sex",),
    "violence": ("kill", "murder", "attack"),
}
_WORD = re.compile(r"[a-z]+")


async def start_moderation(state: AppState, incoming: Incoming, response: HotResponse) -> None:
    """Any model name is accepted and shown."""
    request = decode_body(moderation_decoder, incoming.body)
    body = {
        "id": f"modr-{incoming.request_id}",
        "model": request.model or _DEFAULT_MODEL,
        "results": [_result(text, kinds) for text, kinds in _inputs(request.input)],
    }
    response.respond(200, JSON_HEADERS, orjson.dumps(body))
    response.write()


def _inputs(value: str | Sequence[Any]) -> list[tuple[str, list[str]]]:
    """(text, kinds of input) of each result: one per text, one for all parts together."""
    if isinstance(value, str):
        return [(value, ["text"])]
    if not value:
        raise bad_request("input is an empty list; send a text, texts or parts.", "input")
    if all(isinstance(item, str) for item in value):
        return [(item, ["text"]) for item in value]
    texts, kinds = [], set()
    for at, part in enumerate(value):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
            kinds.add("text")
        elif kind == "image_url" and isinstance(part.get("image_url"), dict):
            kinds.add("image")
        else:
            raise bad_request(f"input.{at} must be a part of type text or image_url.", f"input.{at}")
    return [(" ".join(texts), sorted(kinds, reverse=True))]


def _result(text: str, kinds: list[str]) -> dict[str, Any]:
    words = set(_WORD.findall(text.lower()))
    flagged = {name: not words.isdisjoint(_WORDS.get(name, ())) for name in _CATEGORIES}
    random = Random(f"moderation/{text}").random
    scores = {name: (0.8 + 0.2 * random()) if flagged[name] else 0.01 * random() for name in _CATEGORIES}
    return {
        "flagged": any(flagged.values()),
        "categories": flagged,
        "category_scores": scores,
        "category_applied_input_types": dict.fromkeys(_CATEGORIES, kinds),
    }
