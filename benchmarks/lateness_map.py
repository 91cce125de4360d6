"""A fine lateness histogram in a shared file: the measured server counts, the benchmark reads while it runs.

Owns the file's layout. The floor and our server use this same class, so that their figures compare.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BUCKET_MS = 0.02
_BUCKETS = 100_000  # up to 2 s; the slot behind them takes what is later
_SLOTS = _BUCKETS + 2  # slot 0: early tokens
_SIZE_BYTES = 8 * _SLOTS


@dataclass(frozen=True, slots=True)
class Lateness:
    """Tokens between two readings. Lateness in ms, one bucket's upper bound; None where no token was."""

    tokens: int
    early_tokens: int
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None


class LatenessMap:
    """Counts of tokens per lateness bucket, mapped from a file."""

    def __init__(self, path: Path) -> None:
        """Open the file at `path`; make it if it is not there."""
        if not path.exists() or path.stat().st_size != _SIZE_BYTES:
            path.write_bytes(bytes(_SIZE_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _SIZE_BYTES)
        self._counts = memoryview(self._map).cast("Q")

    def observe(self, lateness_ms: float, tokens: int = 1) -> None:
        """Count tokens that were written this long after their planned time; below 0 is early."""
        slot = int(lateness_ms * (1 / BUCKET_MS)) + 1 if lateness_ms >= 0.0 else 0
        self._counts[slot if slot <= _BUCKETS else _BUCKETS + 1] += tokens

    def read(self) -> list[int]:
        """All counts so far, for `between`."""
        return self._counts.tolist()


def between(before: Sequence[int], after: Sequence[int]) -> Lateness:
    """What was counted between two readings."""
    counts = [late - soon for soon, late in zip(before, after, strict=True)]
    total = sum(counts)
    if not total:
        return Lateness(0, 0, None, None, None)
    last = max(slot for slot, count in enumerate(counts) if count)
    return Lateness(total, counts[0], _quantile(counts, 0.50), _quantile(counts, 0.99), last * BUCKET_MS)


def _quantile(counts: Sequence[int], q: float) -> float:
    rank = q * sum(counts)
    seen = 0
    for slot, count in enumerate(counts):
        seen += count
        if seen >= rank:
            return slot * BUCKET_MS
    raise AssertionError(f"no slot holds quantile {q}")
