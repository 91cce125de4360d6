"""Optional real tokenizers: tiktoken encodings and a local tokenizer.json. Never downloads."""

from __future__ import annotations

from app.text.tokenizer import Tokenizer


class TokenizerError(ValueError):
    """The tokenizer that was asked for cannot be had here; the message says what to pass."""


def load_tokenizer(spec: str = "builtin") -> Tokenizer:
    """The tokenizer that a flag names: "builtin", "tiktoken:ENCODING", or a path to a tokenizer.json
    or to a folder that holds one. Raises TokenizerError with one sentence; never uses the network."""
    raise NotImplementedError
