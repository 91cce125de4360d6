"""Each token's text as the inside of a JSON string, computed once: the hot path splices it."""

from __future__ import annotations

from app.text.tokenizer import Tokenizer


class TokenJson(dict[int, bytes]):
    """`fragments[token_id]` -> JSON-escaped UTF-8 bytes without the quotes; filled on demand.

    Only for tokens that stand alone (`OutputPlan.plain`); others need a Detokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer


def json_fragment(text: str) -> bytes:
    """Any text as the inside of a JSON string (UTF-8, without the quotes)."""
    raise NotImplementedError
