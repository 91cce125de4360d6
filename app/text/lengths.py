"""How long an answer is when nothing says so: a seeded distribution."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LengthModel:
    """Log-normal answer lengths in tokens with this mean and standard deviation, cut to [min, max]. sd 0: constant."""

    mean_tokens: float = 128.0
    sd_tokens: float = 64.0
    min_tokens: int = 1
    max_tokens: int = 8192

    def draw_tokens(self, seed: int) -> int:
        raise NotImplementedError
