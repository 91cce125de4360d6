"""The `Tokenizer` protocol and the built-in, reversible tokenizer.

Owns the mapping between text and token ids. Knows nothing of prompts, plans or HTTP.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Tokenizer(Protocol):
    """Text to token ids and back; pure and thread-safe. ids are uint32, any of them is accepted."""

    @property
    def name(self) -> str: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_token_chars(self) -> int:
        """No token covers more characters: len(text) / this is a cheap lower bound of its tokens."""

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, never a marker's; decode() gives the text back. A lone surrogate counts as U+FFFD."""

    def decode(self, ids: Iterable[int]) -> str:
        """The ids' bytes joined and read as UTF-8; what is not valid UTF-8 becomes U+FFFD."""

    def token_text(self, token_id: int) -> str:
        """One token as text for display; an unknown id gives a printable stand-in such as ⟨123456⟩."""

    def token_bytes(self, token_id: int) -> bytes:
        """One token's bytes; may be part of a character."""

    def marker(self, name: str) -> list[int]:
        """The ids of a template marker ("<|im_start|>"), which plain text never encodes to."""


class BuiltinTokenizer:
    """Deterministic, offline, reversible for any text; about 4 characters a token in English."""

    name = "builtin"
    vocab_size = 131072
    max_token_chars = 32

    def encode(self, text: str) -> list[int]:
        raise NotImplementedError

    def decode(self, ids: Iterable[int]) -> str:
        raise NotImplementedError

    def token_text(self, token_id: int) -> str:
        raise NotImplementedError

    def token_bytes(self, token_id: int) -> bytes:
        raise NotImplementedError

    def marker(self, name: str) -> list[int]:
        raise NotImplementedError
