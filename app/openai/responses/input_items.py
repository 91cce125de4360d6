"""A response's input: any shape that clients send becomes items with ids, and items become chat messages.

Owns the meaning of input items for the prompt. Must not know the store or the engine: what an item reference
means comes in as a function.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from app.errors import ApiError, bad_request

Item = dict[str, Any]
FindItem = Callable[[str], Item | None]

_ROLES = ("user", "system", "developer", "assistant")
_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
}
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_CALL_OUTPUTS = ("function_call_output", "custom_tool_call_output")


def item_id(prefix: str, answer_id: str, number: int) -> str:
    """An id that is the same whenever the same answer is rendered."""
    return f"{prefix}_{blake2b(f'{answer_id}/{prefix}/{number}'.encode(), digest_size=24).hexdigest()}"


def input_items(
    value: str | Sequence[Mapping[str, Any]] | None, answer_id: str, find: FindItem
) -> list[Item]:
    """The input as items, each with id and status. Raises ApiError 400 with the place of the fault."""
    if value is None:
        raise bad_request("input is missing; give a text or a list of items.", "input")
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    if not value:
        raise bad_request("input is empty; it must have at least one item.", "input")
    items = []
    for at, given in enumerate(value):
        item = _item(given, f"input.{at}", find)
        prefix = _PREFIXES.get(item["type"], "item")
        # An id that the client gave stays, so that it finds its items again.
        item["id"] = item.get("id") or item_id(f"{prefix}_in", answer_id, at)
        items.append(item)
    return items


def chat_messages(items: Sequence[Item], instructions: str | None) -> list[dict[str, Any]]:
    """What the chat template renders, without earlier turns' reasoning; calls in a row are one message."""
    messages: list[dict[str, Any]] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    for item in items:
        kind = item["type"]
        if kind == "message":
            messages.append({"role": item["role"], "content": item["content"]})
        elif kind in _CALLS:
            _append_call(messages, item, kind)
        elif kind in _CALL_OUTPUTS:
            messages.append({"role": "tool", "content": _output_content(item.get("output"))})
        elif kind != "reasoning":
            messages.append({"role": "assistant", "content": json.dumps(item, ensure_ascii=False)})
    return messages


def _item(given: Mapping[str, Any], where: str, find: FindItem) -> Item:
    kind = given.get("type")
    if kind is None:
        kind = "message" if "role" in given else "item_reference" if "id" in given else None
    if not isinstance(kind, str) or not kind:
        raise bad_request(f"{where}.type is missing; an item needs a type or a role.", f"{where}.type")
    if kind == "message":
        return _message(given, where)
    if kind == "item_reference":
        return _referred(given, where, find)
    item = {**given, "type": kind}
    if kind in _CALLS:
        for name in ("call_id", "name", _CALLS[kind]):
            _check_text(item, name, where)
        item.setdefault("status", "completed")
    elif kind in _CALL_OUTPUTS:
        _check_text(item, "call_id", where)
        if not isinstance(item.get("output"), str | list):
            raise bad_request(f"{where}.output must be a text or a list of parts.", f"{where}.output")
        item["status"] = item.get("status") or "completed"
    elif kind == "reasoning":
        item.setdefault("summary", [])
    return item


def _message(given: Mapping[str, Any], where: str) -> Item:
    role = given.get("role")
    if role not in _ROLES:
        raise bad_request(
            f"{where}.role is {role!r:.60}; it must be one of {', '.join(_ROLES)}.", f"{where}.role"
        )
    content = given.get("content")
    kind = "output_text" if role == "assistant" else "input_text"
    if isinstance(content, str):
        parts: list[Any] = [{"type": kind, "text": content}]
    elif isinstance(content, list):
        parts = [_part(part, f"{where}.content.{at}", kind) for at, part in enumerate(content)]
    else:
        raise bad_request(f"{where}.content must be a text or a list of parts.", f"{where}.content")
    if role == "assistant":
        parts = [{"annotations": [], **part} if part["type"] == "output_text" else part for part in parts]
    status = given.get("status") or "completed"
    return {**given, "type": "message", "role": role, "content": parts, "status": status}


def _part(part: Any, where: str, text_kind: str) -> dict[str, Any]:
    """A content part; Chat's names are taken too. Never shows the part itself: it may be a whole image."""
    if isinstance(part, str):
        return {"type": text_kind, "text": part}
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        raise bad_request(f"{where} must be an object with a type.", where)
    shown = dict(part)
    if shown["type"] in ("text", "input_text", "output_text"):
        _check_text(shown, "text", where)
        shown["type"] = text_kind
    elif shown["type"] == "input_image":
        if shown.get("image_url") is None and shown.get("file_id") is None:
            raise bad_request(f"{where} has neither image_url nor file_id; give one.", where)
        shown["detail"] = shown.get("detail") or "auto"
    return shown


def _referred(given: Mapping[str, Any], where: str, find: FindItem) -> Item:
    ident = given.get("id")
    found = find(ident) if isinstance(ident, str) else None
    if found is None:
        raise ApiError(
            404, f"Item with id {ident!r:.100} not found.", param=f"{where}.id", code="item_not_found"
        )
    return dict(found)


def _check_text(item: Mapping[str, Any], name: str, where: str) -> None:
    if not isinstance(item.get(name), str):
        raise bad_request(f"{where}.{name} must be a text.", f"{where}.{name}")


def _append_call(messages: list[dict[str, Any]], item: Item, kind: str) -> None:
    call = {"type": "function", "function": {"name": item["name"], "arguments": item[_CALLS[kind]]}}
    if messages and messages[-1].get("tool_calls"):
        messages[-1]["tool_calls"].append(call)
        return
    if messages and messages[-1]["role"] == "assistant":
        messages[-1] = {**messages[-1], "tool_calls": [call]}
        return
    messages.append({"role": "assistant", "content": None, "tool_calls": [call]})


def _output_content(output: Any) -> Any:
    return output if isinstance(output, str | list) else json.dumps(output)
