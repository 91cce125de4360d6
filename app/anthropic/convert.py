"""Anthropic's system text, messages and tools as the chat template and the planner take them. Pure.

Blocks that only a client or Anthropic's own servers understand become text, so that they count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from app.errors import ApiError, bad_request

_MEDIA = ("image", "document")
_UNSEEN = ("thinking", "redacted_thinking")


def chat_messages(
    system: str | Sequence[Mapping[str, Any]] | None, messages: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Raises ApiError 400 with the place of the fault."""
    if not messages:
        raise bad_request("messages is empty; it must have at least one message.", "messages")
    found: list[dict[str, Any]] = []
    if system:
        found.append({"role": "system", "content": _content(system, "system")})
    for at, message in enumerate(messages):
        found += _message(message, f"messages.{at}")
    return found


def chat_tools(tools: Sequence[Mapping[str, Any]] | None) -> list[dict[str, Any]] | None:
    """Tools with an input_schema as functions; Anthropic's own kinds stay as they are, never called."""
    if not tools:
        return None
    found: list[dict[str, Any]] = []
    for at, tool in enumerate(tools):
        if tool.get("type") not in (None, "custom"):
            found.append(dict(tool))
            continue
        if "input_schema" not in tool:
            raise bad_request(
                f"tools.{at}.input_schema is missing; give a JSON Schema object.", f"tools.{at}.input_schema"
            )
        function = {"name": tool.get("name"), "parameters": tool["input_schema"]}
        if tool.get("description") is not None:
            function["description"] = tool["description"]
        found.append({"type": "function", "function": function})
    return found


def chat_tool_choice(choice: Mapping[str, Any] | None) -> tuple[str | dict[str, Any] | None, bool]:
    """(the tool_choice of Chat, whether several calls may come at once). Raises ApiError 400."""
    if choice is None:
        return None, True
    kind = choice.get("type")
    parallel = choice.get("disable_parallel_tool_use") is not True
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}, parallel
    names = {"auto": "auto", "any": "required", "none": "none"}
    if kind not in names:
        raise bad_request(
            f"tool_choice.type is {kind!r:.60}; it must be auto, any, tool or none.", "tool_choice.type"
        )
    return names[kind], parallel


def in_anthropics_words(error: ApiError) -> ApiError:
    """An error of the shared checks, with the names that the client used."""
    for shared, own in ((".function.parameters", ".input_schema"), (".function.name", ".name")):
        error.message = error.message.replace(shared, own)
        error.param = error.param and error.param.replace(shared, own)
    return error


def _message(message: Mapping[str, Any], where: str) -> list[dict[str, Any]]:
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise bad_request(f"{where}.role is {role!r:.60}; it must be user or assistant.", f"{where}.role")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if not isinstance(content, list):
        raise bad_request(f"{where}.content must be a text or a list of blocks.", f"{where}.content")
    results: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for at, block in enumerate(content):
        place = f"{where}.content.{at}"
        kind = _kind(block, place)
        if kind == "tool_result":
            inner = block.get("content")
            results.append(
                {"role": "tool", "content": "" if inner is None else _content(inner, f"{place}.content")}
            )
        elif kind == "tool_use":
            calls.append(_call(block, place))
        elif kind not in _UNSEEN:
            parts.append(_part(block, kind, place))
    if calls:
        return [*results, {"role": role, "content": parts or None, "tool_calls": calls}]
    return [*results, {"role": role, "content": parts}] if parts or not results else results


def _content(content: Any, where: str) -> str | list[dict[str, Any]]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad_request(f"{where} must be a text or a list of blocks.", where)
    return [_part(block, _kind(block, f"{where}.{at}"), f"{where}.{at}") for at, block in enumerate(content)]


def _kind(block: Any, where: str) -> str:
    kind = block.get("type") if isinstance(block, Mapping) else None
    if not isinstance(kind, str):
        raise bad_request(f"{where} must be an object with a type.", where)
    return kind


def _part(block: Mapping[str, Any], kind: str, where: str) -> dict[str, Any]:
    if kind == "text":
        if not isinstance(block.get("text"), str):
            raise bad_request(f"{where}.text must be a text.", f"{where}.text")
        return {"type": "text", "text": block["text"]}
    if kind in _MEDIA:
        if not isinstance(block.get("source"), Mapping):
            raise bad_request(f"{where}.source must be an object.", f"{where}.source")
        return {"type": kind, "source": block["source"]}
    return {"type": "text", "text": _json(block)}


def _call(block: Mapping[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(block.get("name"), str):
        raise bad_request(f"{where}.name must be a text.", f"{where}.name")
    return {
        "type": "function",
        "function": {"name": block["name"], "arguments": _json(block.get("input") or {})},
    }


def _json(value: Any) -> str:
    """As a planned call's arguments are written, so that the next turn finds them in the prefix cache."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
