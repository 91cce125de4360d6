"""Token ids to text, piece by piece: UTF-8 never split, stop strings held back and never leaked.

Owns one choice's text while it grows. Knows nothing of plans, SSE or JSON.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Collection, Iterable, Sequence

from app.text.tokenizer import Tokenizer

_utf8_decoder = getincrementaldecoder("utf-8")


class Detokenizer:
    """Incremental text of one choice. The pieces that push() and finish() return, joined, are its text.

    `stopped` is set once a stop string or stop token came up; `stop_reason` then says which.
    Stops count only after `min_tokens` tokens. The stop string that is complete first wins (of two that
    end together, the longer), so the text is the same however it arrives. Held back: the longest stop
    string's length - 1 characters."""

    __slots__ = (
        "_checked",
        "_decoder",
        "_held",
        "_hold_chars",
        "_include_stop",
        "_min_tokens",
        "_stop",
        "_stop_token_ids",
        "_token_bytes",
        "num_tokens",
        "stop_reason",
        "stopped",
    )

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop: Sequence[str] = (),
        stop_token_ids: Collection[int] = (),
        include_stop_str_in_output: bool = False,
        min_tokens: int = 0,
    ) -> None:
        self.stopped = False
        self.stop_reason: str | int | None = None
        self.num_tokens = 0
        self._token_bytes = tokenizer.token_bytes
        self._decoder = _utf8_decoder("replace")
        self._stop = tuple(text for text in stop if text)
        self._stop_token_ids = frozenset(stop_token_ids)
        self._include_stop = include_stop_str_in_output
        self._min_tokens = min_tokens
        self._hold_chars = max(map(len, self._stop), default=1) - 1
        self._held = ""
        self._checked = 0  # a stop string must end after this many characters of `_held`

    def push(self, token_id: int) -> str:
        """Text that may be sent now; "" while it is held back, and after a stop."""
        if self.stopped:
            return ""
        self.num_tokens += 1
        if token_id in self._stop_token_ids and self.num_tokens > self._min_tokens:
            return self._stop_at_token(token_id)
        text = self._decoder.decode(self._token_bytes(token_id))
        if not self._stop:
            return text
        return self._hold(text)

    def push_many(self, token_ids: Iterable[int]) -> str:
        """As push() for each in turn, joined."""
        return "".join(map(self.push, token_ids))

    def finish(self) -> str:
        """What was held back, once no more tokens come (an unfinished character becomes U+FFFD)."""
        if self.stopped:
            return ""
        text = self._hold(self._decoder.decode(b"", final=True))
        held, self._held = self._held, ""
        return text if self.stopped else text + held

    def _stop_at_token(self, token_id: int) -> str:
        self.stopped = True
        self.stop_reason = token_id
        text, self._held = self._held, ""
        if self._include_stop:
            text += self._decoder.decode(self._token_bytes(token_id))
        return text + self._decoder.decode(b"", final=True)

    def _hold(self, new_text: str) -> str:
        """Add text, look for a stop in it, and return what can no longer become part of one."""
        held = self._held + new_text
        if self.num_tokens <= self._min_tokens:
            self._checked = len(held)
        elif found := self._first_stop(held):
            start, stop = found
            self.stopped = True
            self.stop_reason = stop
            self._held = ""
            return held[: start + len(stop)] if self._include_stop else held[:start]
        else:
            self._checked = len(held)
        ready = len(held) - self._hold_chars
        if ready <= 0:
            self._held = held
            return ""
        self._held = held[ready:]
        self._checked -= ready
        return held[:ready]

    def _first_stop(self, held: str) -> tuple[int, str] | None:
        """(start, stop string) of the match that ends first after the text already checked."""
        best: tuple[int, int, str] | None = None
        for stop in self._stop:
            start = held.find(stop, max(0, self._checked + 1 - len(stop)))
            if start >= 0 and (best is None or (start + len(stop), start) < best[:2]):
                best = (start + len(stop), start, stop)
        return None if best is None else (best[1], best[2])
