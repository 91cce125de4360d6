"""How late tokens were written, against the engine's plan: a cheap cumulative histogram.

Bounds in ms. Owned by the dispatcher; /metrics and /admin/metrics read it.
"""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_MS: tuple[float, ...] = (
    0.1,
    0.25,
    0.5,
    1.0,
    2.0,
    3.0,
    5.0,
    10.0,
    15.0,
    25.0,
    50.0,
    100.0,
    250.0,
    1000.0,
)


class LatenessHistogram:
    """Counts per bucket (not cumulative; the last one is above every bound), sum and greatest, in ms."""

    __slots__ = ("counts", "max_ms", "sum_ms", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_MS) + 1)
        self.total = 0
        self.sum_ms = 0.0
        self.max_ms = 0.0

    def observe(self, lateness_ms: float, tokens: int) -> None:
        self.counts[bisect_left(BOUNDS_MS, lateness_ms)] += tokens
        self.total += tokens
        self.sum_ms += lateness_ms * tokens
        if lateness_ms > self.max_ms:
            self.max_ms = lateness_ms

    def quantile_ms(self, q: float) -> float | None:
        """Upper bound of the bucket with quantile `q`; the greatest value for the last; None if empty."""
        if not self.total:
            return None
        rank = q * self.total
        seen = 0
        for bound, count in zip(BOUNDS_MS, self.counts, strict=False):
            seen += count
            if seen >= rank:
                return min(bound, self.max_ms)
        return self.max_ms
