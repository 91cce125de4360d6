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


def parse_prompts(prompt: Any, param: str = "prompt") -> list[Prompt]:
    """All prompts of a request, at least one. `param` is the field's name. Raises ApiError 400."""
    if prompt is None or prompt in ("", []):
        raise bad_request(
            f"{param} is empty; send a text, a list of texts, token ids or lists of token ids.", param
        )
    if isinstance(prompt, str):
        return [Prompt(text=prompt)]
    if len(prompt) > _MAX_PROMPTS and not isinstance(prompt[0], int):
        raise bad_request(f"{param} has {len(prompt)} entries; at most {_MAX_PROMPTS} are allowed.", param)
    first = prompt[0]
    if isinstance(first, bool):
        raise _mixed(0, first, param)
    if isinstance(first, int):
        return [Prompt(token_ids=_token_ids(prompt, param, param))]
    return [_entry(item, position, type(first), param) for position, item in enumerate(prompt)]


def _entry(item: Any, position: int, kind: type, param: str) -> Prompt:
    if isinstance(item, str) and kind is str:
        if not item:
            raise bad_request(f"{param}.{position} is empty; every entry needs some text.", param)
        return Prompt(text=item)
    if isinstance(item, list) and kind is list:
        if not item:
            raise bad_request(f"{param}.{position} is empty; every entry needs at least one token.", param)
        return Prompt(token_ids=_token_ids(item, f"{param}.{position}", param))
    raise _mixed(position, item, param)


def _token_ids(items: list[Any], name: str, param: str) -> list[int]:
    for position, item in enumerate(items):
        if not isinstance(item, int) or isinstance(item, bool):
            raise schema_error(
                f"{name}.{position} is {_short(item)}; a token id must be a whole number.", param
            )
        if not 0 <= item <= _MAX_TOKEN_ID:
            raise bad_request(
                f"{name}.{position} is {item}; a token id must be between 0 and {_MAX_TOKEN_ID}.", param
            )
    return items


def _mixed(position: int, item: Any, param: str) -> ApiError:
    return schema_error(
        f"{param}.{position} is {_short(item)}; {param} must be a text, a list of texts, "
        "token ids or lists of token ids.",
        param,
    )


def _short(item: Any) -> str:
    text = repr(item)
    return text if len(text) <= 40 else text[:37] + "..."
