"""Plausible, deterministic logprobs: pure functions of a plan's seed, the position and the token."""

from __future__ import annotations

from dataclasses import dataclass

from app.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """token: its text; logprob: <= 0; token_bytes: its UTF-8 bytes; rank: 1 = most likely."""

    token_id: int
    token: str
    logprob: float
    token_bytes: bytes
    rank: int


@dataclass(frozen=True, slots=True)
class PositionLogprobs:
    """The sampled token, and the top-k (best first, distinct; it may lack the sampled one)."""

    sampled: TokenLogprob
    top: tuple[TokenLogprob, ...]


def position_logprobs(
    tokenizer: Tokenizer, seed: int, position: int, token_id: int, top_k: int = 0
) -> PositionLogprobs:
    """Logprobs of `token_id` at `position` of the plan with this seed. exp() of all top sums to <= 1."""
    raise NotImplementedError
