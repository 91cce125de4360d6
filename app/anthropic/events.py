"""A message's content blocks, and the stream events that make them.

    message_start, then for each block: content_block_start, (ping after the first,) content_block_delta ...,
    content_block_stop; then message_delta with the usage and message_stop. No [DONE].

Must not know the engine or HTTP.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import orjson
from pydantic_core import from_json

from app.openai.blocks import Block

_DELTAS = {
    "content": ("text_delta", "text"),
    "reasoning": ("thinking_delta", "thinking"),
    "tool_call": ("input_json_delta", "partial_json"),
}
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'


class MessageEvents:
    """Makes the records of one stream; an `EventShape`. `hide_thinking`: thinking blocks have no text."""

    __slots__ = ("_head", "_hide_thinking", "_message_id", "_muted")

    def __init__(self, message_id: str, *, hide_thinking: bool = False) -> None:
        self._message_id = message_id
        self._hide_thinking = hide_thinking
        self._head = b""
        self._muted = False

    def start(self, message: Mapping[str, Any]) -> bytes:
        return _record("message_start", {"message": message})

    def block_start(self, block: Block) -> list[bytes]:
        self._muted = block.kind == "reasoning" and self._hide_thinking
        fields = {"index": block.number, "content_block": self._empty(block)}
        kind, name = _DELTAS[block.kind]
        head = orjson.dumps({"type": "content_block_delta", "index": block.number, "delta": {"type": kind}})
        self._head = b"event: content_block_delta\ndata: " + head[:-2] + b',"%s":"' % name.encode()
        records = [_record("content_block_start", fields)]
        return records if block.number else [*records, _PING]

    def block_delta(self, block: Block, fragment: bytes, logprobs: Sequence[Mapping[str, Any]]) -> bytes:
        # Hot: once per token.
        return b"" if self._muted else self._head + fragment + b'"}}\n\n'

    def block_end(self, block: Block) -> list[bytes]:
        stop = _record("content_block_stop", {"index": block.number})
        if block.kind != "reasoning":
            return [stop]
        delta = {"type": "signature_delta", "signature": signature(block)}
        return [_record("content_block_delta", {"index": block.number, "delta": delta}), stop]

    def end(
        self, stop_reason: str | None, stop_sequence: str | None, usage: Mapping[str, Any]
    ) -> list[bytes]:
        delta = {"stop_reason": stop_reason, "stop_sequence": stop_sequence}
        return [_record("message_delta", {"delta": delta, "usage": usage}), _record("message_stop", {})]

    def _empty(self, block: Block) -> dict[str, Any]:
        if block.kind == "content":
            return {"type": "text", "text": ""}
        if block.kind == "reasoning":
            return {"type": "thinking", "thinking": "", "signature": ""}
        return {
            "type": "tool_use",
            "id": tool_use_id(self._message_id, block),
            "name": block.name,
            "input": {},
        }


def content_block(message_id: str, block: Block, *, hide_thinking: bool = False) -> dict[str, Any]:
    """The whole block. The arguments of a call that the limit cut are what of them can be read."""
    if block.kind == "content":
        return {"type": "text", "text": block.text}
    if block.kind == "reasoning":
        thinking = "" if hide_thinking else block.text
        return {"type": "thinking", "thinking": thinking, "signature": signature(block)}
    arguments = from_json(block.text or "{}", allow_partial=True)
    return {
        "type": "tool_use",
        "id": tool_use_id(message_id, block),
        "name": block.name,
        "input": arguments if isinstance(arguments, dict) else {},
    }


def tool_use_id(message_id: str, block: Block) -> str:
    return f"toolu_{_digest(f'{message_id}/{block.number}', 12).hex()}"


def signature(block: Block) -> str:
    """What a client must send back with the block; here it proves nothing."""
    return base64.b64encode(_digest(block.text, 48)).decode()


def _digest(text: str, size: int) -> bytes:
    return blake2b(text.encode("utf-8", "replace"), digest_size=size).digest()


def _record(kind: str, fields: Mapping[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), orjson.dumps({"type": kind, **fields}))
