"""Token ids to text, piece by piece: UTF-8 never split, stop strings held back and never leaked."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from app.text.tokenizer import Tokenizer


class Detokenizer:
    """Incremental text of one choice. The pieces that push() and finish() return, joined, are its text.

    `stopped` is set once a stop string or stop token came up; `stop_reason` then says which.
    Stops only count after `min_tokens` tokens. Of several stop strings the one that is complete first wins."""

    stopped: bool
    stop_reason: str | int | None

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop: Sequence[str] = (),
        stop_token_ids: Collection[int] = (),
        include_stop_str_in_output: bool = False,
        min_tokens: int = 0,
    ) -> None: ...

    def push(self, token_id: int) -> str:
        """Text that may be sent now; "" while it is held back, and after a stop."""
        raise NotImplementedError

    def push_many(self, token_ids: Sequence[int]) -> str:
        """As push() for each in turn, joined."""
        raise NotImplementedError

    def finish(self) -> str:
        """What was held back, once no more tokens come (an unfinished character becomes U+FFFD)."""
        raise NotImplementedError
