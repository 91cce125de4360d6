"""Chat messages to prompt token ids. Growing a conversation keeps the ids of what was there.

Owns the template. Must not fetch anything: an image, audio, file or video part is a fixed
number of placeholder tokens, whose id comes from a hash of the part, so that the same image is the
same prefix and another one is not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from app.text.encode_cache import EncodeCache
from app.text.generator import tool_call_header
from app.text.tokenizer import Tokenizer

ROLES = ("system", "developer", "user", "assistant", "tool", "function")

_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
_PART_KINDS = {
    "image_url": "image",
    "input_image": "image",
    "image": "image",
    "image_pil": "image",
    "image_embeds": "image",
    "input_audio": "audio",
    "audio_url": "audio",
    "audio": "audio",
    "video_url": "video",
    "video": "video",
    "file": "file",
    "input_file": "file",
    "document": "file",
}
_PLACEHOLDER_BASE = 0x40000000  # far above any vocabulary, still a uint32


class ChatTemplateError(ValueError):
    """Messages that cannot be rendered; `param` is the path of the culprit ("messages.1.content")."""

    def __init__(self, message: str, param: str = "messages") -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class PartTokens:
    """Placeholder tokens for each kind of part that is not text."""

    image: int = 256
    image_low_detail: int = 85
    audio: int = 128
    file: int = 512
    video: int = 1024


DEFAULT_PART_TOKENS = PartTokens()


class ChatTemplate:
    """Renders messages (dicts as on the wire) with one tokenizer.

    A message is: start marker, "role" or "role name", line end, content, calls, end marker, line end.
    Tool definitions stand before the first message. Reasoning of earlier turns is left out."""

    def __init__(self, tokenizer: Tokenizer, part_tokens: PartTokens = DEFAULT_PART_TOKENS) -> None:
        self._tokenizer = tokenizer
        self._part_tokens = part_tokens
        self._cache = EncodeCache(tokenizer)
        self._start = tokenizer.marker("<|im_start|>")
        self._end = [*tokenizer.marker("<|im_end|>"), *tokenizer.encode("\n")]
        self._headers = {role: tokenizer.encode(f"{role}\n") for role in ROLES}
        self._generation = [*self._start, *tokenizer.encode("assistant\n")]

    def encode(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> list[int]:
        """Prompt ids. continue_final_message leaves the last message open instead of asking for a new one.

        Raises ChatTemplateError: no messages, unknown role, wrong part, both flags."""
        if not messages:
            raise ChatTemplateError("messages is empty; send at least one message.")
        if continue_final_message and add_generation_prompt:
            raise ChatTemplateError(
                "Cannot set both `continue_final_message` and `add_generation_prompt` to true; unset one.",
                "continue_final_message",
            )
        ids = self._tools(tools) if tools else []
        for index, message in enumerate(messages):
            self._append(ids, message, f"messages.{index}")
            ids += self._end
        if continue_final_message:
            del ids[-len(self._end) :]
        elif add_generation_prompt:
            ids += self._generation
        return ids

    def _tools(self, tools: Sequence[Mapping[str, Any]]) -> list[int]:
        lines = "".join(json.dumps(tool, ensure_ascii=False, default=str) + "\n" for tool in tools)
        return [*self._start, *self._cache.encode("tools\n" + lines), *self._end]

    def _append(self, ids: list[int], message: Mapping[str, Any], path: str) -> None:
        role, name = message.get("role"), message.get("name")
        if role not in ROLES:
            raise ChatTemplateError(
                f"{path}.role is {role!r}; it must be one of {', '.join(ROLES)}.", f"{path}.role"
            )
        ids += self._start
        named = isinstance(name, str) and name
        ids += self._tokenizer.encode(f"{role} {name}\n") if named else self._headers[role]
        content = message.get("content")
        if type(content) is str:
            ids += self._cache.encode(content)
        else:
            self._append_content(ids, content, f"{path}.content")
        if "tool_calls" not in message and "function_call" not in message:
            return
        for call in _calls(message, path):
            ids += tool_call_header(self._tokenizer, call[0])
            ids += self._tokenizer.encode(call[1])

    def _append_content(self, ids: list[int], content: Any, path: str) -> None:
        if isinstance(content, str):
            ids += self._cache.encode(content)
        elif isinstance(content, Sequence):
            for index, part in enumerate(content):
                self._append_part(ids, part, f"{path}.{index}")
        elif content is not None:
            raise ChatTemplateError(f"{path} must be a string, a list of parts or null.", path)

    def _append_part(self, ids: list[int], part: Any, path: str) -> None:
        if (text := _part_text(part, path)) is not None:
            ids += self._cache.encode(text)
            return
        kind = _PART_KINDS[part["type"]]
        if kind == "image" and _detail(part) == "low":
            kind = "image_low_detail"
        ids += [_placeholder_id(part)] * getattr(self._part_tokens, kind)


def message_text(message: Mapping[str, Any]) -> str:
    """A message's text, its parts joined; "" for one without text."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    texts = (part if isinstance(part, str) else part.get("text") for part in content if part)
    return "".join(text for text in texts if isinstance(text, str))


def last_user_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """The text of the last user message ("" if there is none): what echo mode and fixtures look at."""
    return next((message_text(m) for m in reversed(messages) if m.get("role") == "user"), "")


def _part_text(part: Any, path: str) -> str | None:
    """A text part's text, None for another known kind. Raises ChatTemplateError."""
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind in _TEXT_PARTS:
        text = part.get("refusal" if kind == "refusal" else "text")
        if not isinstance(text, str):
            raise ChatTemplateError(f"{path} is a part of type {kind!r} without text.", path)
        return text
    if kind not in _PART_KINDS:
        known = ", ".join((*_TEXT_PARTS, *_PART_KINDS))
        raise ChatTemplateError(f"{path} has type {kind!r}; it must be one of {known}.", f"{path}.type")
    return None


def _detail(part: Mapping[str, Any]) -> object:
    image = part.get("image_url")
    return image.get("detail") if isinstance(image, Mapping) else part.get("detail")


def _placeholder_id(part: Mapping[str, Any]) -> int:
    text = json.dumps(part, sort_keys=True, default=str).encode()
    return _PLACEHOLDER_BASE | int.from_bytes(blake2b(text, digest_size=4).digest(), "little") & 0x3FFFFFFF


def _calls(message: Mapping[str, Any], path: str) -> list[tuple[str, str]]:
    """(name, arguments text) of an assistant message's calls, the legacy function_call included."""
    calls = message.get("tool_calls") or []
    functions = [call.get("function") if isinstance(call, Mapping) else None for call in calls]
    if message.get("function_call"):
        functions.append(message["function_call"])
    found = []
    for index, function in enumerate(functions):
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(name, str):
            where = f"{path}.tool_calls.{index}"
            raise ChatTemplateError(f"{where} has no function with a name.", where)
        arguments = function.get("arguments")
        found.append((name, arguments if isinstance(arguments, str) else json.dumps(arguments or {})))
    return found
