"""The four forms of a completion's prompt: a text, texts, token ids, lists of token ids. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.errors import ApiError, bad_request, schema_error

_MAX_TOKEN_ID = 2**32 - 1
_MAX_PROMPTS = 4096


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt. Exactly one of the two is set."""

    text: str | None = None
    token_ids: list[int] | None = None

    @property
    def text_chars(self) -> int:
        return len(self.text or "")


def parse_prompts(prompt: Any) -> list[Prompt]:
    """All prompts of a request, at least one. Raises ApiError 400."""
    if prompt is None or prompt in ("", []):
        raise bad_request(
            "prompt is empty; send a text, a list of texts, token ids or lists of token ids.", "prompt"
        )
    if isinstance(prompt, str):
        return [Prompt(text=prompt)]
    if len(prompt) > _MAX_PROMPTS and not isinstance(prompt[0], int):
        raise bad_request(f"prompt has {len(prompt)} entries; at most {_MAX_PROMPTS} are allowed.", "prompt")
    first = prompt[0]
    if isinstance(first, bool):
        raise _mixed(0, first)
    if isinstance(first, int):
        return [Prompt(token_ids=_token_ids(prompt, "prompt"))]
    return [_entry(item, position, type(first)) for position, item in enumerate(prompt)]


def _entry(item: Any, position: int, kind: type) -> Prompt:
    if isinstance(item, str) and kind is str:
        if not item:
            raise bad_request(f"prompt.{position} is empty; every prompt needs some text.", "prompt")
        return Prompt(text=item)
    if isinstance(item, list) and kind is list:
        if not item:
            raise bad_request(f"prompt.{position} is empty; every prompt needs at least one token.", "prompt")
        return Prompt(token_ids=_token_ids(item, f"prompt.{position}"))
    raise _mixed(position, item)


def _token_ids(items: list[Any], name: str) -> list[int]:
    for position, item in enumerate(items):
        if not isinstance(item, int) or isinstance(item, bool):
            raise schema_error(
                f"{name}.{position} is {_short(item)}; a token id must be a whole number.", "prompt"
            )
        if not 0 <= item <= _MAX_TOKEN_ID:
            raise bad_request(
                f"{name}.{position} is {item}; a token id must be between 0 and {_MAX_TOKEN_ID}.", "prompt"
            )
    return items


def _mixed(position: int, item: Any) -> ApiError:
    return schema_error(
        f"prompt.{position} is {_short(item)}; prompt must be a text, a list of texts, "
        "token ids or lists of token ids.",
        "prompt",
    )


def _short(item: Any) -> str:
    text = repr(item)
    return text if len(text) <= 40 else text[:37] + "..."
