"""Plausible, deterministic logprobs: pure functions of a plan's seed, the position and the token.

They are made up: no model stands behind them. What holds: they are <= 0, the top list is sorted and
distinct, its probabilities sum to at most 1, and the sampled token keeps its value in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from app.text.prose import MASK64, single_token_words
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
    """The sampled token, and the top k (best first, distinct; it may lack the sampled one if k is small)."""

    sampled: TokenLogprob
    top: tuple[TokenLogprob, ...]


class LogprobModel:
    """Logprobs for one tokenizer's tokens. Made once, shared by all requests."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @cached_property
    def _words(self) -> list[int]:
        return list(dict.fromkeys(single_token_words(self._tokenizer.encode)))

    def at(
        self, seed: int, position: int, token_id: int, top_k: int = 0, *, greedy: bool = False
    ) -> PositionLogprobs:
        """Of `token_id` at `position` of the plan with this seed. greedy: the sampled token ranks first."""
        bits = _mix(seed + position * 0x9E3779B97F4A7C15)
        rank = 1 if greedy else _sampled_rank((bits >> 48) / 2**16)
        best = 0.45 + 0.54 * (bits & 0xFFFF) / 2**16
        ratio = 0.5 + 0.3 * (bits >> 16 & 0xFFFF) / 2**16
        sampled = self._entry(token_id, rank, best, ratio)
        top: list[TokenLogprob] = []
        place, step = bits >> 32, (bits >> 8 & 0x3F) * 2 + 1
        top_k = min(top_k, len(self._words) - 1)
        while len(top) < top_k:
            if len(top) + 1 == rank:
                top.append(sampled)
                continue
            place += step
            other = self._words[place % len(self._words)]
            if other != token_id and all(other != entry.token_id for entry in top):
                top.append(self._entry(other, len(top) + 1, best, ratio))
            elif step > 1:
                step = 1  # from here on every word comes up
        return PositionLogprobs(sampled, tuple(top))

    def of_prompt(self, prompt_seed: int, token_ids: list[int], top_k: int = 0) -> list[PositionLogprobs]:
        """For prompt_logprobs and echo: one entry for each token after the first."""
        return [self.at(prompt_seed, place, token_id, top_k) for place, token_id in enumerate(token_ids)][1:]

    def _entry(self, token_id: int, rank: int, best: float, ratio: float) -> TokenLogprob:
        probability = best if rank == 1 else (1 - best) * (1 - ratio) * ratio ** (rank - 2)
        tokenizer = self._tokenizer
        token_bytes = tokenizer.token_bytes(token_id)
        return TokenLogprob(
            token_id, tokenizer.token_text(token_id), math.log(probability), token_bytes, rank
        )


def _sampled_rank(fraction: float) -> int:
    """Mostly the likeliest token is the one sampled."""
    if fraction < 0.85:
        return 1
    return 2 if fraction < 0.96 else 3


def _mix(value: int) -> int:
    value &= MASK64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK64
    return value ^ value >> 31
