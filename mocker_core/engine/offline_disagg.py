"""Replays a trace over a prefill pool and a decode pool with handoffs between them (engine.md section 10).

The order within one instant is the reference's: pass ends, each with its grant attempt, then new
reservations, then waiting commands, each followed by a grant attempt, then arrivals.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

from mocker_core.commands import ActivateDestination, ReleaseSource, ReserveDestination, SubmitHandoffPrefill
from mocker_core.engine.arrivals import SLACK_MS
from mocker_core.engine.offline import OfflineReplay, PassObserver, ReplayWorker
from mocker_core.engine_args import MockEngineArgs
from mocker_core.errors import ArgumentError, MockerError
from mocker_core.events import DestinationReserved, SchedulerLifecycleEvent, SourceHeld
from mocker_core.handoff.timing import TransferTiming
from mocker_core.request import HandoffId
from mocker_core.sched.output import FinishedRequest
from mocker_core.trace import TraceRow

_HandoffCommand = ActivateDestination | ReleaseSource


class DisaggregatedReplay(OfflineReplay):
    """`num_prefill_workers` and `num_decode_workers` workers, each pool round robin. A handoff's id is its
    row's index.
    """

    def __init__(
        self,
        trace: Sequence[TraceRow],
        prefill_args: MockEngineArgs,
        decode_args: MockEngineArgs,
        *,
        trace_block_size: int = 512,
        concurrency: int | None = None,
        num_prefill_workers: int = 1,
        num_decode_workers: int = 1,
        on_pass: PassObserver | None = None,
    ) -> None:
        if num_decode_workers < 1:
            raise ArgumentError(f"num_decode_workers is {num_decode_workers}; it must be >= 1.")
        if prefill_args.block_size != decode_args.block_size:
            raise ArgumentError(
                f"block_size is {prefill_args.block_size} for prefill and {decode_args.block_size} for "
                "decode; a handoff needs the same on both sides."
            )
        super().__init__(
            trace,
            prefill_args,
            trace_block_size=trace_block_size,
            concurrency=concurrency,
            num_workers=num_prefill_workers,
            on_pass=on_pass,
        )
        self._prefill = list(self.workers)
        self._decode = [
            ReplayWorker(decode_args, len(self._prefill) + index) for index in range(num_decode_workers)
        ]
        if not self._decode[0].core.policy.supports_destinations:
            raise ArgumentError(
                f"engine_type is {decode_args.engine_type.value} for decode, which can't reserve a "
                "destination; use engine_type vllm there."
            )
        self.workers += self._decode
        self._timing = TransferTiming.from_args(decode_args)
        self._transfers: list[tuple[float, int, int]] = []
        self._grants = 0
        self._reservations = 0
        self._source_of: dict[int, ReplayWorker] = {}
        self._destination_of: dict[int, ReplayWorker] = {}
        self._commands: dict[int, deque[_HandoffCommand]] = {worker.index: deque() for worker in self.workers}

    def _settle(self, now_ms: float) -> None:
        held: list[int] = []
        for worker in self.workers:
            result = self._end_pass(worker, now_ms)
            if result is None:
                self._advance(worker, now_ms)
                continue
            held += [int(event.handoff_id) for event in result.lifecycle if isinstance(event, SourceHeld)]
            self._note_lifecycle(worker, worker.core.retry_destinations(now_ms).lifecycle, now_ms)
        for index in held:
            self.rows[index].source_held_ms = now_ms
            self._reserve(index, now_ms)
        self._apply_commands(now_ms)
        for arrival_ms, index in self._arrivals.take(now_ms):
            self.rows[index].arrival_ms = arrival_ms
            self._dispatch(index, now_ms)

    def _next_instant(self, now_ms: float) -> float | None:
        instant = super()._next_instant(now_ms)
        if self._transfers:
            done_ms = max(self._transfers[0][0], now_ms)
            instant = done_ms if instant is None else min(instant, done_ms)
        return instant

    def _dispatch(self, index: int, now_ms: float) -> None:
        worker = self._prefill[self._dispatched % len(self._prefill)]
        self._dispatched += 1
        self._source_of[index] = worker
        command = SubmitHandoffPrefill(HandoffId(str(index)), self._request(index))
        try:
            worker.core.apply_command(command, allow_destination_grant=False, now_ms=now_ms)
        except MockerError:
            self._end_row(index, "rejected", now_ms)
            return
        worker.touched = True

    def _reserve(self, index: int, now_ms: float) -> None:
        """A decode worker in mid-pass takes the reservation at once but grants nothing."""
        worker = self._decode[self._reservations % len(self._decode)]
        self._reservations += 1
        self._destination_of[index] = worker
        command = ReserveDestination(HandoffId(str(index)), self._request(index))
        idle = worker.current is None
        try:
            effects = worker.core.apply_command(command, allow_destination_grant=idle, now_ms=now_ms)
        except MockerError:
            self._end_row(index, "rejected", now_ms)
            self._release(index)
            return
        self._note_lifecycle(worker, effects.lifecycle, now_ms)

    def _apply_commands(self, now_ms: float) -> None:
        """Finished transfers and waiting commands of idle workers, until nothing is left to do at this
        instant.
        """
        while True:
            while self._transfers and self._transfers[0][0] <= now_ms + SLACK_MS:
                index = heapq.heappop(self._transfers)[2]
                self._queue(self._destination_of[index], ActivateDestination(HandoffId(str(index))))
            ready = [
                worker for worker in self.workers if worker.current is None and self._commands[worker.index]
            ]
            if not ready:
                return
            for worker in ready:
                self._apply(worker, self._commands[worker.index].popleft(), now_ms)

    def _apply(self, worker: ReplayWorker, command: _HandoffCommand, now_ms: float) -> None:
        effects = worker.core.apply_command(command, allow_destination_grant=True, now_ms=now_ms)
        worker.touched = True
        index = int(command.handoff_id)
        if isinstance(command, ActivateDestination):
            self.rows[index].destination_activated_ms = now_ms
            self._release(index)
        else:
            self.rows[index].source_released_ms = now_ms
        self._note_lifecycle(worker, effects.lifecycle, now_ms)

    def _release(self, index: int) -> None:
        self._queue(self._source_of[index], ReleaseSource(HandoffId(str(index))))

    def _queue(self, worker: ReplayWorker, command: _HandoffCommand) -> None:
        self._commands[worker.index].append(command)

    def _note_lifecycle(
        self, worker: ReplayWorker, events: Sequence[SchedulerLifecycleEvent], now_ms: float
    ) -> None:
        for event in events:
            if not isinstance(event, DestinationReserved):
                continue
            worker.touched = True
            index = int(event.handoff_id)
            row = self.rows[index]
            row.destination_reserved_ms = now_ms
            delay_ms = self._timing.handoff_delay_ms(
                prompt_tokens=row.input_length, transferable_prompt_tokens=event.transferable_prompt_tokens
            )
            self._grants += 1
            heapq.heappush(self._transfers, (now_ms + (delay_ms or 0.0), self._grants, index))

    def _note_admission(self, worker: ReplayWorker, index: int, now_ms: float) -> None:
        row = self.rows[index]
        if worker in self._decode:
            row.decode_admit_ms = now_ms if row.decode_admit_ms is None else row.decode_admit_ms
        elif row.prefill_admit_ms is None:
            row.prefill_admit_ms = now_ms

    def _note_finished(self, worker: ReplayWorker, facts: FinishedRequest, now_ms: float) -> None:
        row = self.rows[int(facts.request_id)]
        if worker in self._decode:
            self._note_tokens(row, facts)
            self._end_row(row.trace_index, "rejected" if facts.rejected else "completed", now_ms)
            return
        row.first_admit_ms = facts.first_admit_ms
        row.reused_input_tokens = None if facts.first_admit_ms is None else facts.reused_input_tokens
        row.preemptions += facts.preemptions
        if facts.rejected:
            self._end_row(row.trace_index, "rejected", now_ms)
