"""A cumulative histogram that is cheap to fill: one bisection for any number of equal observations."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """`counts[i]` observations are above the bound before and at most `bounds[i]`; the last are above all."""

    __slots__ = ("bounds", "counts", "sum", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum: float = 0
        self.total = 0

    def quantile(self, q: float) -> float | None:
        """Estimated within its bucket, as Prometheus does; None if empty, the last bound if above all."""
        if not self.total:
            return None
        rank, seen, lower = q * self.total, 0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if count and seen + count >= rank:
                return lower + (bound - lower) * (rank - seen) / count
            seen += count
            lower = bound
        return self.bounds[-1]

    def observe(self, value: float, count: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += count
        self.sum += value * count
        self.total += count
