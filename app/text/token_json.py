"""Each token's text as the inside of a JSON string, computed once: the hot path splices it."""

from __future__ import annotations

from json import dumps

from app.text.tokenizer import Tokenizer

_KEPT_FRAGMENTS = 200_000


class TokenJson(dict[int, bytes]):
    """`fragments[token_id]` -> JSON-escaped UTF-8 bytes without the quotes; filled on demand, bounded.

    Only for tokens that stand alone (`OutputPlan.plain`); others need a Detokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, token_id: int) -> bytes:
        fragment = json_fragment(self._tokenizer.token_text(token_id))
        if len(self) < _KEPT_FRAGMENTS:
            self[token_id] = fragment
        return fragment


class StandsAlone(dict[int, bool]):
    """`flags[token_id]` -> whether its bytes are whole characters, and not empty; filled on demand."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, token_id: int) -> bool:
        token_bytes = self._tokenizer.token_bytes(token_id)
        try:
            alone = bool(token_bytes.decode("utf-8"))
        except UnicodeDecodeError:
            alone = False
        if len(self) < _KEPT_FRAGMENTS:
            self[token_id] = alone
        return alone


def json_fragment(text: str) -> bytes:
    """Any text as the inside of a JSON string (UTF-8, without the quotes). A lone surrogate stays escaped."""
    quoted = dumps(text, ensure_ascii=False)
    try:
        return quoted[1:-1].encode()
    except UnicodeEncodeError:
        return dumps(text)[1:-1].encode()
