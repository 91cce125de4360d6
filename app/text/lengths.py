"""How long an answer is when nothing says so: a seeded distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import NormalDist

_SEED_BITS = 64


@dataclass(frozen=True, slots=True)
class LengthModel:
    """Log-normal answer lengths in tokens with this mean and standard deviation, cut to [min, max].

    sd_tokens 0 gives the mean itself. Raises ValueError for a value out of range."""

    mean_tokens: float = 128.0
    sd_tokens: float = 64.0
    min_tokens: int = 1
    max_tokens: int = 8192
    _normal: NormalDist | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (1 <= self.mean_tokens < math.inf):
            raise ValueError(f"mean_tokens is {self.mean_tokens}; it must be a finite number >= 1.")
        if not (0 <= self.sd_tokens < math.inf):
            raise ValueError(f"sd_tokens is {self.sd_tokens}; it must be a finite number >= 0.")
        if not 1 <= self.min_tokens <= self.max_tokens:
            raise ValueError(
                f"min_tokens is {self.min_tokens} and max_tokens {self.max_tokens};"
                " they must be >= 1 and in this order."
            )
        normal = None
        if self.sd_tokens > 0:
            variance = math.log(1 + (self.sd_tokens / self.mean_tokens) ** 2)
            normal = NormalDist(math.log(self.mean_tokens) - variance / 2, math.sqrt(variance))
        object.__setattr__(self, "_normal", normal)

    def draw_tokens(self, seed: int) -> int:
        """A length for these 64 bits."""
        length = self.mean_tokens
        if self._normal is not None:
            quantile = (seed + 0.5) / 2**_SEED_BITS
            quantile = min(max(quantile, 1e-12), 1 - 1e-12)
            length = math.exp(min(self._normal.inv_cdf(quantile), 40.0))
        return min(max(round(length), self.min_tokens), self.max_tokens)
