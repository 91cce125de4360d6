"""Load over virtual time while a replay runs: batch, queue, blocks, preemptions, in a bounded number of bins.

Owns the bins and their widening. Knows nothing of files or pictures.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mocker_core.engine.offline import ReplayWorker
from mocker_core.sched.output import EnginePassResult

MAX_BINS = 480
_FIRST_BIN_MS = 1.0


@dataclass(slots=True)
class LoadBin:
    """Integrals over one bin (value x ms) and the preemptions in it."""

    running: float = 0.0
    waiting: float = 0.0
    active_blocks: float = 0.0
    cached_blocks: float = 0.0
    preemptions: int = 0

    def absorb(self, other: LoadBin) -> None:
        self.running += other.running
        self.waiting += other.waiting
        self.active_blocks += other.active_blocks
        self.cached_blocks += other.cached_blocks
        self.preemptions += other.preemptions


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """Time-weighted means of one bin, which begins at `start_ms`; `preemptions` is a count."""

    start_ms: float
    running: float
    waiting: float
    active_blocks: float
    cached_blocks: float
    preemptions: int


@dataclass(slots=True)
class PoolLoad:
    """The workers of one kind, added up. Between passes the values of the last pass hold."""

    name: str
    total_blocks: int = 0
    bin_ms: float = _FIRST_BIN_MS
    end_ms: float = 0.0
    bins: list[LoadBin] = field(default_factory=list)
    _latest: dict[int, tuple[int, int, int, int, int]] = field(default_factory=dict)
    _sums: tuple[int, int, int, int] = (0, 0, 0, 0)

    def add(self, worker: ReplayWorker, result: EnginePassResult) -> None:
        """A pass of one of the workers ended."""
        self._hold_until(result.end_ms)
        metrics = result.metrics
        before = self._latest.get(worker.index)
        if before is None:
            self.total_blocks += metrics.total_blocks
        preempted = metrics.vllm_preemptions_total - (before[4] if before else 0)
        self._latest[worker.index] = (
            metrics.running_requests,
            metrics.waiting_requests,
            metrics.active_decode_blocks,
            worker.core.pool.inactive_blocks,
            metrics.vllm_preemptions_total,
        )
        columns = zip(*self._latest.values(), strict=True)
        self._sums = (sum(next(columns)), sum(next(columns)), sum(next(columns)), sum(next(columns)))
        if preempted:
            self._bin_at(result.end_ms).preemptions += preempted

    def points(self) -> list[LoadPoint]:
        """One point per bin, the last bin over the part that the replay reached."""
        found: list[LoadPoint] = []
        for index, part in enumerate(self.bins):
            start_ms = index * self.bin_ms
            span_ms = min(self.bin_ms, self.end_ms - start_ms) or self.bin_ms
            found.append(
                LoadPoint(
                    start_ms=start_ms,
                    running=part.running / span_ms,
                    waiting=part.waiting / span_ms,
                    active_blocks=part.active_blocks / span_ms,
                    cached_blocks=part.cached_blocks / span_ms,
                    preemptions=part.preemptions,
                )
            )
        return found

    def _hold_until(self, end_ms: float) -> None:
        self._bin_at(end_ms)  # widens first, so that the width holds throughout
        running, waiting, active, cached = self._sums
        while self.end_ms < end_ms:
            part = self._bin_at(self.end_ms)
            # Exact: the width is a power of two.
            edge_ms = (int(self.end_ms / self.bin_ms) + 1) * self.bin_ms
            until_ms = min(edge_ms, end_ms)
            span_ms = until_ms - self.end_ms
            part.running += running * span_ms
            part.waiting += waiting * span_ms
            part.active_blocks += active * span_ms
            part.cached_blocks += cached * span_ms
            self.end_ms = until_ms

    def _bin_at(self, at_ms: float) -> LoadBin:
        while (index := int(at_ms / self.bin_ms)) >= MAX_BINS:
            self._widen()
        while len(self.bins) <= index:
            self.bins.append(LoadBin())
        return self.bins[index]

    def _widen(self) -> None:
        """Join neighbours: half as many bins, each twice as long."""
        for index in range(0, len(self.bins) - 1, 2):
            self.bins[index].absorb(self.bins[index + 1])
        self.bins = self.bins[::2]
        self.bin_ms *= 2


class LoadRecorder:
    """One `PoolLoad` per kind of worker, in the order in which they first ended a pass."""

    def __init__(self) -> None:
        self._pools: dict[str, PoolLoad] = {}

    @property
    def pools(self) -> list[PoolLoad]:
        return list(self._pools.values())

    def on_pass(self, worker: ReplayWorker, result: EnginePassResult) -> None:
        name = str(worker.core.args.worker_type)
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = PoolLoad(name)
        pool.add(worker, result)
