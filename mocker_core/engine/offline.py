"""Replays a trace on one virtual clock through the very same core as the live server (engine.md section 10).

Owns the clock, the workers and the rows. Aggregated workers here; prefill and decode pools are in
`engine.offline_disagg`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mocker_core.engine.arrivals import SLACK_MS, Arrivals
from mocker_core.engine.core import EngineCore
from mocker_core.engine.replay_report import ReplayRow
from mocker_core.engine_args import MockEngineArgs
from mocker_core.errors import ArgumentError, MockerError
from mocker_core.events import SchedulerLifecycleEvent
from mocker_core.request import DirectRequest, RequestId
from mocker_core.sched.output import EnginePassResult, FinishedRequest
from mocker_core.trace import TraceIdentities, TraceRow, TraceSequence

PassObserver = Callable[["ReplayWorker", EnginePassResult], None]


class ReplayWorker:
    """A core, the pass it is in, and whether anything happened since its last pass without progress."""

    def __init__(self, args: MockEngineArgs, index: int) -> None:
        # No side of a replayed handoff can vanish, so none is given up for waiting long.
        self.core = EngineCore(args, index, emit_tokens=False, collect_fpm=False, expire_handoffs=False)
        self.index = index
        self.current: EnginePassResult | None = None
        self.touched = False

    @property
    def wants_pass(self) -> bool:
        return self.current is None and self.touched and not self.core.is_empty()


class OfflineReplay:
    """Open or closed loop over `num_workers` aggregated workers, round robin.

    `run()` fills `rows` (trace order), `gaps` (inter-token gaps as (ms, count)) and `duration_ms` (end of the
    last pass). `on_pass` is called at each pass's end, for progress and plots.
    """

    def __init__(
        self,
        trace: Sequence[TraceRow],
        args: MockEngineArgs,
        *,
        trace_block_size: int = 512,
        concurrency: int | None = None,
        num_workers: int = 1,
        on_pass: PassObserver | None = None,
    ) -> None:
        if num_workers < 1:
            raise ArgumentError(f"num_workers is {num_workers}; it must be >= 1.")
        self.trace = trace
        self.rows = [ReplayRow(row.trace_index, row.input_length) for row in trace]
        self.gaps: list[tuple[float, int]] = []
        self.duration_ms = 0.0
        self.workers = [ReplayWorker(args, index) for index in range(num_workers)]
        self.identities = TraceIdentities(args.block_size, trace_block_size)
        self._arrivals = Arrivals(trace, concurrency)
        self._dispatched = 0
        self._on_pass = on_pass

    def run(self) -> None:
        """Replay to the end. Raises ArgumentError if some request can never run under these arguments."""
        now_ms: float | None = 0.0
        while now_ms is not None:
            self._settle(now_ms)
            for worker in self.workers:
                if worker.wants_pass:
                    self._start_pass(worker, now_ms)
            now_ms = self._next_instant(now_ms)
        stuck = [row.trace_index for row in self.rows if row.status is None]
        if stuck:
            raise ArgumentError(
                f"trace row {stuck[0]} can never be scheduled under these arguments; "
                "raise max_num_batched_tokens or enable chunked prefill."
            )

    def _settle(self, now_ms: float) -> None:
        """Everything that happens at this instant before the next passes start."""
        for worker in self.workers:
            self._end_pass(worker, now_ms)
            self._advance(worker, now_ms)
        for arrival_ms, index in self._arrivals.take(now_ms):
            self.rows[index].arrival_ms = arrival_ms
            self._dispatch(index, now_ms)

    def _dispatch(self, index: int, now_ms: float) -> None:
        worker = self.workers[self._dispatched % len(self.workers)]
        self._dispatched += 1
        try:
            worker.core.receive(self._request(index))
        except MockerError:
            self._end_row(index, "rejected", now_ms)
            return
        worker.touched = True

    def _request(self, index: int) -> DirectRequest:
        row = self.trace[index]
        return DirectRequest(
            request_id=RequestId(str(index)),
            max_output_tokens=row.output_length,
            blocks=TraceSequence(row, self.identities),
            prompt_length=row.input_length,
            priority=row.priority,
        )

    def _start_pass(self, worker: ReplayWorker, now_ms: float) -> None:
        core = worker.core
        # Only the tiers can change the metrics in a pass that schedules nothing and emits nothing.
        metrics_before = None if core.offload is None else core.metrics()
        result = core.execute_pass(now_ms)
        # A pass without progress is no boundary: the worker rests until something touches it.
        worker.touched = result.end_ms > now_ms or result.made_progress(metrics_before or result.metrics)
        if worker.touched:
            worker.current = result
            for admission in result.admissions:
                self._note_admission(worker, int(admission.request_id), now_ms)

    def _end_pass(self, worker: ReplayWorker, now_ms: float) -> EnginePassResult | None:
        """Take in the pass that ends at this instant, if one does."""
        result = worker.current
        if result is None or result.end_ms > now_ms + SLACK_MS:
            return None
        worker.current = None
        self.duration_ms = max(self.duration_ms, result.end_ms)
        self.gaps += result.gaps
        for facts in result.finished:
            self._note_finished(worker, facts, result.end_ms)
        if self._on_pass is not None:
            self._on_pass(worker, result)
        return result

    def _advance(self, worker: ReplayWorker, now_ms: float) -> None:
        """Let time act on an idle worker: transfers, holds."""
        deadline_ms = worker.core.next_deadline_ms()
        if worker.current is None and deadline_ms is not None and deadline_ms <= now_ms + SLACK_MS:
            effects = worker.core.advance(max(now_ms, deadline_ms), allow_destination_grant=True)
            worker.touched = True
            self._note_lifecycle(worker, effects.lifecycle, now_ms)

    def _next_instant(self, now_ms: float) -> float | None:
        instants: list[float] = []
        for worker in self.workers:
            if worker.current is not None:
                instants.append(worker.current.end_ms)
            elif (deadline_ms := worker.core.next_deadline_ms()) is not None:
                instants.append(max(deadline_ms, now_ms))
        arrival_ms = self._arrivals.next_ms()
        if arrival_ms is not None:
            instants.append(max(arrival_ms, now_ms))
        return min(instants, default=None)

    def _note_lifecycle(
        self, worker: ReplayWorker, events: Sequence[SchedulerLifecycleEvent], now_ms: float
    ) -> None:
        """A hook for the disaggregated replay; aggregated workers have no handoffs."""

    def _note_admission(self, worker: ReplayWorker, index: int, now_ms: float) -> None:
        """A hook for the disaggregated replay; an aggregated row takes its facts when it ends."""

    def _note_finished(self, worker: ReplayWorker, facts: FinishedRequest, now_ms: float) -> None:
        row = self.rows[int(facts.request_id)]
        row.first_admit_ms = facts.first_admit_ms
        row.reused_input_tokens = None if facts.first_admit_ms is None else facts.reused_input_tokens
        self._note_tokens(row, facts)
        self._end_row(row.trace_index, "rejected" if facts.rejected else "completed", now_ms)

    def _note_tokens(self, row: ReplayRow, facts: FinishedRequest) -> None:
        row.first_token_ms = facts.first_token_ms
        row.last_token_ms = facts.last_token_ms
        row.output_length = facts.output_tokens
        row.preemptions += facts.preemptions

    def _end_row(self, index: int, status: str, now_ms: float) -> None:
        self.rows[index].status = status
        self._arrivals.ended(index, now_ms)
