"""The `Tokenizer` protocol and the built-in, reversible tokenizer.

Owns the mapping between text and token ids. Knows nothing of prompts, plans or HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from itertools import chain
from typing import Protocol

from app.text.vocabulary import BYTE_BASE, CHAR_BASE, MARKERS, PIECE_BASE, VOCAB_SIZE, load_vocabulary

_REPLACEMENT = 0xFFFD
_CACHED_PIECES = 50_000

# How text falls apart before the vocabulary is asked. A word takes one blank before it; a run of blanks
# leaves its last one to what follows. Runs are bounded so that no piece is longer than max_token_chars.
_PIECES = re.compile(
    r"'(?:s|t|re|ve|m|ll|d)(?![A-Za-z])"
    r"| ?[A-Za-z]{1,31}"
    r"| ?[!-/:-@\[-`{-~]{1,8}"
    r"|[0-9]{1,3}"
    r"|[^\x00-\x7f]"
    r"|[\r\n]{1,4}"
    r"|[ \t\v\f]{1,16}(?=[ \t\v\f\r\n]|\Z)"
    r"|[ \t\v\f]{1,16}"
    r"|[\s\S]"
)


class Tokenizer(Protocol):
    """Text to token ids and back; pure and thread-safe. Ids are uint32, any of them is accepted."""

    @property
    def name(self) -> str: ...

    @property
    def vocab_size(self) -> int: ...

    @property
    def max_token_chars(self) -> int:
        """No token covers more characters: len(text) / this is a cheap lower bound of its tokens."""

    def encode(self, text: str) -> list[int]:
        """The ids of `text`, never a marker's; decode() gives the text back.

        A lone surrogate counts as U+FFFD (the HTTP edge refuses such text before)."""

    def decode(self, ids: Iterable[int]) -> str:
        """The ids' bytes joined and read as UTF-8; what is not valid UTF-8 becomes U+FFFD."""

    def token_text(self, token_id: int) -> str:
        """One token as text for display; an unknown id gives a printable stand-in such as ⟨123456⟩."""

    def token_bytes(self, token_id: int) -> bytes:
        """One token's bytes; may be part of a character."""

    def marker(self, name: str) -> list[int]:
        """The ids of a template marker such as "<|im_start|>"; the built-in's never come from plain text."""


class BuiltinTokenizer:
    """Deterministic, offline, reversible for any text; about 4 characters a token in English."""

    name = "builtin"
    vocab_size = VOCAB_SIZE
    max_token_chars = 32

    def __init__(self) -> None:
        vocabulary = load_vocabulary()
        self._pieces = _PieceTable(vocabulary.ids)
        self._bytes = _TokenBytes(vocabulary.pieces)

    def encode(self, text: str) -> list[int]:
        # One C pipeline: a prompt of 10,000 tokens takes a few milliseconds.
        return list(chain.from_iterable(map(self._pieces.__getitem__, _PIECES.findall(text))))

    def decode(self, ids: Iterable[int]) -> str:
        return b"".join(map(self._bytes.__getitem__, ids)).decode("utf-8", "replace")

    def token_text(self, token_id: int) -> str:
        return self._bytes[token_id].decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        return self._bytes[token_id]

    def marker(self, name: str) -> list[int]:
        """Raises ValueError for a name that is no marker of this tokenizer."""
        if name not in MARKERS:
            raise ValueError(f"{name!r} is no marker; the built-in tokenizer has {', '.join(MARKERS)}.")
        return [MARKERS.index(name)]


def stand_in(token_id: int) -> str:
    """What stands for an id that no vocabulary has."""
    return f"⟨{token_id}⟩"


class _PieceTable(dict[str, tuple[int, ...]]):
    """Piece -> its ids. Pieces that the vocabulary lacks are split once and kept, up to a bound."""

    def __init__(self, ids: dict[str, int]) -> None:
        # Filled as pieces come up: building it whole would double the start-up time.
        super().__init__()
        self._ids = ids
        self._bound = len(ids) + _CACHED_PIECES

    def __missing__(self, piece: str) -> tuple[int, ...]:
        if (token_id := self._ids.get(piece)) is not None:
            found: tuple[int, ...] = (token_id,)
        else:
            found = self._split(piece) if piece.isascii() else _character(ord(piece))
        if len(self) < self._bound:
            self[piece] = found
        return found

    @cached_property
    def _longest(self) -> dict[str, int]:
        """The size of the longest part that begins with these three characters, where it is above two."""
        longest: dict[str, int] = {}
        for part in self._ids:
            if (size := len(part)) > longest.get(part[:3], 2):
                longest[part[:3]] = size
        return longest

    def _split(self, piece: str) -> tuple[int, ...]:
        """Greedy from the left: always the longest part that the vocabulary has (one letter at least)."""
        ids, longest = self._ids, self._longest
        found = []
        start, size = 0, len(piece)
        while start < size:
            end = min(size, start + longest.get(piece[start : start + 3], 2))
            while (token_id := ids.get(piece[start:end])) is None:
                end -= 1
            found.append(token_id)
            start = end
        return tuple(found)


class _TokenBytes(dict[int, bytes]):
    """Id -> its bytes, made on demand; all but stand-ins are kept."""

    def __init__(self, pieces: tuple[str, ...]) -> None:
        super().__init__((BYTE_BASE + byte, bytes((byte,))) for byte in range(256))
        self.update((token_id, marker.encode()) for token_id, marker in enumerate(MARKERS))
        self._pieces = pieces

    def __missing__(self, token_id: int) -> bytes:
        code = token_id - CHAR_BASE
        if PIECE_BASE <= token_id < PIECE_BASE + len(self._pieces):
            found = self._pieces[token_id - PIECE_BASE].encode()
        elif 0x80 <= code <= 0xFFFF and not 0xD800 <= code <= 0xDFFF:
            found = chr(code).encode()
        else:
            return stand_in(token_id).encode()  # any of four billion: not kept
        self[token_id] = found
        return found


def _character(code: int) -> tuple[int, ...]:
    """The ids of a character outside ASCII."""
    if 0xD800 <= code <= 0xDFFF:
        code = _REPLACEMENT
    if code <= 0xFFFF:
        return (CHAR_BASE + code,)
    return tuple(BYTE_BASE + byte for byte in chr(code).encode())
