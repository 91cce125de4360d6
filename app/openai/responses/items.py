"""Output items of a response from the blocks of its answer. Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from app.openai.blocks import Block
from app.openai.responses.input_items import item_id

_PREFIXES = {"content": "msg", "reasoning": "rs", "tool_call": "fc"}
_LONGEST_SUMMARY_CHARS = 200


@dataclass(frozen=True, slots=True)
class ItemOptions:
    """What of the request changes how items look. `summary`: reasoning items get one."""

    answer_id: str
    encrypted_reasoning: bool = False
    summary: bool = False


def block_id(options: ItemOptions, block: Block) -> str:
    return item_id(_PREFIXES[block.kind], options.answer_id, block.number)


def open_item(options: ItemOptions, block: Block) -> dict[str, Any]:
    """The item as a stream announces it: empty, in progress."""
    ident = block_id(options, block)
    if block.kind == "reasoning":
        return {"id": ident, "type": "reasoning", "summary": [], "content": [], "status": "in_progress"}
    if block.kind == "tool_call":
        return {**_call(options, block, ident, "in_progress"), "arguments": ""}
    return {"id": ident, "type": "message", "role": "assistant", "status": "in_progress", "content": []}


def whole_item(options: ItemOptions, block: Block) -> dict[str, Any]:
    """The item of an ended block: completed, or incomplete if the limit cut it."""
    ident = block_id(options, block)
    status = "completed" if block.complete else "incomplete"
    if block.kind == "tool_call":
        return _call(options, block, ident, status)
    part = content_part(block, whole=True)
    if block.kind == "content":
        return {"id": ident, "type": "message", "role": "assistant", "status": status, "content": [part]}
    item: dict[str, Any] = {
        "id": ident,
        "type": "reasoning",
        "summary": summary_parts(block) if options.summary else [],
        "content": [part],
        "status": status,
    }
    if options.encrypted_reasoning:
        sealed = blake2b(f"{ident}/{block.text}".encode("utf-8", "replace"), digest_size=48).digest()
        item["encrypted_content"] = base64.b64encode(sealed).decode()
    return item


def content_part(block: Block, *, whole: bool) -> dict[str, Any]:
    """The one part of a message or reasoning item; empty where a stream announces it."""
    text = block.text if whole else ""
    if block.kind == "reasoning":
        return {"type": "reasoning_text", "text": text}
    logprobs = block.logprobs if whole else []
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def summary_parts(block: Block) -> list[dict[str, Any]]:
    """A short summary of a reasoning block: its first sentence."""
    sentence = block.text.strip().partition(". ")[0][:_LONGEST_SUMMARY_CHARS]
    return [{"type": "summary_text", "text": sentence}]


def output_items(options: ItemOptions, blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """All items of an answer. An answer without any text is an empty message."""
    return [whole_item(options, block) for block in blocks or [Block("content", 0)]]


def _call(options: ItemOptions, block: Block, ident: str, status: str) -> dict[str, Any]:
    return {
        "id": ident,
        "type": "function_call",
        "call_id": item_id("call", options.answer_id, block.number),
        "name": block.name,
        "arguments": block.text,
        "status": status,
    }
