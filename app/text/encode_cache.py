"""Remembers the token ids of long texts: load tests and chats send the same system prompts and turns again.

Owns the bound on what is kept. Must not know messages.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from app.text.tokenizer import Tokenizer

_SHORT_CHARS = 200  # shorter texts are encoded about as fast as they are looked up
_MAX_CHARS = 2_000_000
_MAX_TEXT_CHARS = _MAX_CHARS // 8


class EncodeCache:
    """encode() as the tokenizer's, from any thread; beyond `max_chars` in all, texts long unused go."""

    def __init__(self, tokenizer: Tokenizer, max_chars: int = _MAX_CHARS) -> None:
        self._tokenizer = tokenizer
        self._max_chars = max_chars
        self._chars = 0
        self._ids: dict[str, list[int]] = {}  # in order of last use
        # Long prompts are encoded in threads. Not held meanwhile: two may encode the same text.
        self._lock = threading.Lock()

    def encode(self, text: str) -> Sequence[int]:
        """The ids of `text`; shared, so not to be changed."""
        if not _SHORT_CHARS <= len(text) <= min(_MAX_TEXT_CHARS, self._max_chars):
            return self._tokenizer.encode(text)
        with self._lock:
            ids = self._ids.pop(text, None)
            if ids is not None:
                self._ids[text] = ids
                return ids
        ids = self._tokenizer.encode(text)
        with self._lock:
            if text not in self._ids:
                self._make_room(len(text))
            self._ids[text] = ids
        return ids

    def _make_room(self, chars: int) -> None:
        self._chars += chars
        while self._chars > self._max_chars:
            oldest = next(iter(self._ids))
            del self._ids[oldest]
            self._chars -= len(oldest)

    def __len__(self) -> int:
        return len(self._ids)
