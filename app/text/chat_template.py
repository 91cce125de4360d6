"""Chat messages to prompt token ids. Growing a conversation keeps the ids of what was there.

Must not fetch anything: an image, audio, file or video part is a fixed number of placeholder tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.text.tokenizer import Tokenizer


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


class ChatTemplate:
    """Renders messages (dicts as on the wire) with one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, part_tokens: PartTokens = PartTokens()) -> None: ...  # noqa: B008

    def encode(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
    ) -> list[int]:
        """Prompt ids. Raises ChatTemplateError (unknown role, wrong part, both flags, nothing to continue)."""
        raise NotImplementedError


def last_user_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """The text of the last user message ("" if there is none): what echo mode and fixtures look at."""
    raise NotImplementedError


def message_text(message: Mapping[str, Any]) -> str:
    """A message's text parts joined."""
    raise NotImplementedError
