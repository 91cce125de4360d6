"""The stream events of a response: documented names and order, a sequence number that rises by one.

    created, [queued], in_progress, then for each item: output_item.added, content_part.added, deltas,
    done, content_part.done, output_item.done; then completed, incomplete or failed. No [DONE].

Must not know the engine or HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from app.json_body import encode_body
from app.openai.blocks import Block
from app.openai.responses.items import (
    ItemOptions,
    block_id,
    content_part,
    open_item,
    summary_parts,
    whole_item,
)

_DELTAS = {
    "content": "response.output_text.delta",
    "reasoning": "response.reasoning_text.delta",
    "tool_call": "response.function_call_arguments.delta",
}


class ResponseEvents:
    """Makes the records of one reader's stream; an `EventShape`."""

    __slots__ = ("_head", "_next", "_options", "_tail")

    def __init__(self, options: ItemOptions) -> None:
        self._options = options
        self._next = 0
        self._head = self._tail = b""

    def lifecycle(self, event: str, response: Mapping[str, Any]) -> bytes:
        """`response.<event>` with the response as it is then."""
        return self._record(f"response.{event}", {"response": response})

    def error(self, code: str | None, message: str, param: str | None) -> bytes:
        return self._record("error", {"code": code, "message": message, "param": param})

    def empty_message(self) -> list[bytes]:
        """The events of an answer without any text."""
        block = Block("content", 0)
        return self.block_start(block) + self.block_end(block)

    def block_start(self, block: Block) -> list[bytes]:
        place = self._place(block)
        added = {"output_index": block.number, "item": open_item(self._options, block)}
        records = [self._record("response.output_item.added", added)]
        if block.kind != "tool_call":
            part = {**place, "part": content_part(block, whole=False)}
            records.append(self._record("response.content_part.added", part))
        fields = orjson.dumps({"type": _DELTAS[block.kind], **place})
        self._head = b"event: %s\ndata: %s" % (_DELTAS[block.kind].encode(), fields[:-1] + b',"delta":"')
        logprobs = b',"logprobs":[]' if block.kind == "content" else b""
        self._tail = b'"' + logprobs + b',"sequence_number":'
        return records

    def block_delta(self, block: Block, fragment: bytes, logprobs: Sequence[Mapping[str, Any]]) -> bytes:
        # Hot: once per token.
        number = self._next
        self._next = number + 1
        if logprobs:
            tail = b'","logprobs":' + orjson.dumps(logprobs) + b',"sequence_number":'
            return self._head + fragment + tail + b"%d}\n\n" % number
        return self._head + fragment + self._tail + b"%d}\n\n" % number

    def block_end(self, block: Block) -> list[bytes]:
        place = self._place(block)
        item = whole_item(self._options, block)
        records: list[bytes] = []
        if block.kind == "tool_call":
            done = {**place, "name": block.name, "arguments": block.text}
            records.append(self._record("response.function_call_arguments.done", done))
        else:
            kind = "output_text" if block.kind == "content" else "reasoning_text"
            text: dict[str, Any] = {**place, "text": block.text}
            if block.kind == "content":
                text["logprobs"] = block.logprobs
            records.append(self._record(f"response.{kind}.done", text))
            part = {**place, "part": content_part(block, whole=True)}
            records.append(self._record("response.content_part.done", part))
        if block.kind == "reasoning" and self._options.summary:
            records += self._summary(block)
        done = {"output_index": block.number, "item": item}
        records.append(self._record("response.output_item.done", done))
        return records

    def _summary(self, block: Block) -> list[bytes]:
        part = summary_parts(block)[0]
        place = {
            "item_id": block_id(self._options, block),
            "output_index": block.number,
            "summary_index": 0,
        }
        start = "response.reasoning_summary"
        return [
            self._record(f"{start}_part.added", {**place, "part": {**part, "text": ""}}),
            self._record(f"{start}_text.delta", {**place, "delta": part["text"]}),
            self._record(f"{start}_text.done", {**place, "text": part["text"]}),
            self._record(f"{start}_part.done", {**place, "part": part}),
        ]

    def _place(self, block: Block) -> dict[str, Any]:
        place: dict[str, Any] = {"item_id": block_id(self._options, block), "output_index": block.number}
        if block.kind != "tool_call":
            place["content_index"] = 0
        return place

    def _record(self, kind: str, fields: Mapping[str, Any]) -> bytes:
        body = {"type": kind, **fields, "sequence_number": self._next}
        self._next += 1
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), encode_body(body))
