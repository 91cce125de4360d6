"""Plain offline replay on one virtual clock: open loop, sessions, closed loop, workers, 1 prefill + 1 decode.

Owns arrivals, the clock and the per-request rows. All times in a row are milliseconds since the
smallest timestamp of the trace.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from .plain_core import IdentityTable, PlainArgs, PlainCore, PlainPass, PlainRequest

SLACK_MS = 1e-9
Row = dict[str, Any]
ROW_KEYS = (
    "trace_index",
    "arrival_ms",
    "first_admit_ms",
    "first_token_ms",
    "last_token_ms",
    "ttft_ms",
    "e2e_ms",
    "mean_itl_ms",
    "input_length",
    "output_length",
    "reused_input_tokens",
    "preemptions",
    "status",
)
DISAGG_KEYS = (
    "prefill_admit_ms",
    "source_held_ms",
    "destination_reserved_ms",
    "destination_activated_ms",
    "source_released_ms",
    "decode_admit_ms",
)


def trace_content(row: Row, trace_index: int, trace_block_size: int) -> Callable[[int, int], Hashable]:
    """Names the tokens of a trace row: by hash id where there is one, else unique to the row."""
    prompt, hash_ids = row["input_length"], row.get("hash_ids") or []

    def content(start: int, end: int) -> Hashable:
        segments: list[Hashable] = []
        position = start
        while position < min(end, prompt):
            index, offset = divmod(position, trace_block_size)
            length = min(end, prompt, (index + 1) * trace_block_size) - position
            name = hash_ids[index] if index < len(hash_ids) else ("row", trace_index, index)
            segments.append((name, offset, length))
            position += length
        if end > prompt:
            segments.append(("output", trace_index, max(start, prompt) - prompt, end - prompt))
        return tuple(segments)

    return content


class Worker:
    """A core and the pass it is in."""

    def __init__(self, args: PlainArgs, identities: IdentityTable) -> None:
        self.core = PlainCore(args, identities)
        self.current: PlainPass | None = None
        self.started_ms = 0.0
        self.touched = False  # something happened since its last pass without progress

    @property
    def idle(self) -> bool:
        return self.current is None

    def wants_pass(self) -> bool:
        core = self.core
        return self.idle and self.touched and bool(core.running or core.preempted or core.waiting)


class Arrivals:
    """Which trace row is dispatched when. `take(now)` gives the rows that are due, in order."""

    def __init__(self, trace: Sequence[Row], concurrency: int | None) -> None:
        self.trace = trace
        self.concurrency = concurrency
        self.in_flight = 0
        self.due: list[tuple[float, int]] = []  # heap of (arrival_ms, trace_index)
        self.next_turn: dict[int, int] = {}
        last_of_session: dict[Hashable, int] = {}
        t0 = min(row["timestamp"] for row in trace if row.get("timestamp") is not None)
        for index, row in enumerate(trace):
            session = row.get("session_id")
            if session is not None and concurrency is not None:
                raise ValueError("sessions in a closed loop are not defined")
            if session is not None and session in last_of_session:
                self.next_turn[last_of_session[session]] = index
            else:
                arrival = 0.0 if concurrency is not None else float(row["timestamp"] - t0)
                heapq.heappush(self.due, (arrival, index))
            if session is not None:
                last_of_session[session] = index

    def take(self, now_ms: float) -> list[tuple[float, int]]:
        taken: list[tuple[float, int]] = []
        while self.due and self.due[0][0] <= now_ms + SLACK_MS:
            if self.concurrency is not None and self.in_flight >= self.concurrency:
                break
            arrival_ms, index = heapq.heappop(self.due)
            self.in_flight += 1
            taken.append((now_ms if self.concurrency is not None else arrival_ms, index))
        return taken

    def ended(self, index: int, now_ms: float) -> None:
        self.in_flight -= 1
        follower = self.next_turn.get(index)
        if follower is not None:
            row = self.trace[follower]
            delay = row.get("delay", row.get("delay_ms")) or 0.0
            heapq.heappush(self.due, (now_ms + delay, follower))

    def next_ms(self) -> float | None:
        blocked = self.concurrency is not None and self.in_flight >= self.concurrency
        return self.due[0][0] if self.due and not blocked else None


class PlainReplay:
    """Replays a trace on `num_workers` aggregated workers, round robin."""

    def __init__(
        self,
        trace: Sequence[Row],
        args: PlainArgs,
        *,
        trace_block_size: int = 512,
        concurrency: int | None = None,
        num_workers: int = 1,
    ) -> None:
        self.trace = trace
        self.trace_block_size = trace_block_size
        self.arrivals = Arrivals(trace, concurrency)
        self.identities = IdentityTable()
        self.workers = [Worker(args, self.identities) for _ in range(num_workers)]
        self.rows = [self._empty_row(index, row) for index, row in enumerate(trace)]
        self.dispatched = 0
        self.duration_ms = 0.0

    def _empty_row(self, index: int, row: Row) -> Row:
        empty = dict.fromkeys(ROW_KEYS)
        lengths = {"input_length": row["input_length"], "output_length": 0, "preemptions": 0}
        return {**empty, **lengths, "trace_index": index}

    def run(self) -> list[Row]:
        """All per-request rows, in trace order."""
        now_ms: float | None = 0.0
        while now_ms is not None:
            self.settle(now_ms)
            for worker in self.workers:
                if worker.wants_pass():
                    self.start_pass(worker, now_ms)
            now_ms = self.next_instant(now_ms)
        for row in self.rows:
            if row["status"] is None:
                raise RuntimeError(f"row {row['trace_index']} never ended: no pass makes progress any more")
        return self.rows

    def settle(self, now_ms: float) -> None:
        """Everything that happens at this instant before the next passes start."""
        for worker in self.workers:
            self.end_pass(worker, now_ms)
        for arrival_ms, index in self.arrivals.take(now_ms):
            self.dispatch(arrival_ms, index)

    def next_instant(self, now_ms: float) -> float | None:
        times = [worker.current.end_ms for worker in self.workers if worker.current is not None]
        arrival_ms = self.arrivals.next_ms()
        if arrival_ms is not None:
            times.append(max(arrival_ms, now_ms))
        return min(times, default=None)

    def request(self, index: int) -> PlainRequest:
        row = self.trace[index]
        content = trace_content(row, index, self.trace_block_size)
        output = row["output_length"]
        return PlainRequest(index, row["input_length"], output, content, row.get("priority") or 0)

    def dispatch(self, arrival_ms: float, index: int) -> None:
        self.rows[index]["arrival_ms"] = arrival_ms
        worker = self.workers[self.dispatched % len(self.workers)]
        self.dispatched += 1
        worker.core.receive(self.request(index))
        worker.touched = True

    def start_pass(self, worker: Worker, now_ms: float) -> None:
        """Run the pass; what it decided is visible at its end, its admissions at its start."""
        result = worker.core.execute_pass(now_ms)
        worker.touched = result.progress
        if not result.progress:
            return
        worker.current, worker.started_ms = result, now_ms
        for index, reused in result.admissions:
            self.note_admission(worker, index, reused, now_ms)

    def note_admission(self, worker: Worker, index: Any, reused: int, now_ms: float) -> None:
        row = self.rows[index]
        if row["first_admit_ms"] is None:
            row["first_admit_ms"] = now_ms
            row["reused_input_tokens"] = reused
        else:
            row["preemptions"] += 1

    def end_pass(self, worker: Worker, now_ms: float) -> PlainPass | None:
        """The pass that ends at this instant, its outputs noted; None if there is none."""
        result = worker.current
        if result is None or result.end_ms > now_ms + SLACK_MS:
            return None
        worker.current = None
        self.duration_ms = max(self.duration_ms, result.end_ms)
        for index, token, completed, rejected in result.outputs:
            self.note_output(worker, index, token, completed, rejected, result.end_ms)
        return result

    def note_output(
        self, worker: Worker, index: Any, token: int | None, completed: bool, rejected: bool, at_ms: float
    ) -> None:
        row = self.rows[index]
        if token is not None:
            if row["first_token_ms"] is None:
                row["first_token_ms"] = at_ms
            row["last_token_ms"] = at_ms
            row["output_length"] += 1
        if completed:
            self.end_row(row, "rejected" if rejected else "completed", at_ms)

    def end_row(self, row: Row, status: str, at_ms: float) -> None:
        row["status"] = status
        self.arrivals.ended(row["trace_index"], at_ms)
        if row["first_token_ms"] is not None:
            row["ttft_ms"] = row["first_token_ms"] - row["arrival_ms"]
            row["e2e_ms"] = row["last_token_ms"] - row["arrival_ms"]
            if row["output_length"] > 1:
                span = row["last_token_ms"] - row["first_token_ms"]
                row["mean_itl_ms"] = span / (row["output_length"] - 1)


class PlainDisaggReplay(PlainReplay):
    """One prefill and one decode worker; a handoff's id is its trace index."""

    def __init__(
        self, trace: Sequence[Row], prefill: PlainArgs, decode: PlainArgs, *, trace_block_size: int = 512
    ) -> None:
        super().__init__(trace, prefill, trace_block_size=trace_block_size)
        self.prefill = self.workers[0]
        self.decode = Worker(decode, self.identities)
        self.workers.append(self.decode)
        self.transfers: list[tuple[float, int, int]] = []  # heap of (done_ms, order of grant, handoff)
        self.granted = 0
        self.to_release: list[int] = []  # releases the prefill worker has not taken yet
        for row in self.rows:
            row.update(dict.fromkeys(DISAGG_KEYS))

    def settle(self, now_ms: float) -> None:
        held: list[Any] = []
        for worker in self.workers:
            result = self.end_pass(worker, now_ms)
            if result is None:
                continue
            held += [handoff for kind, handoff, _, _ in result.lifecycle if kind == "source_held"]
            self.attempt_grant(worker, now_ms)
        for handoff in held:
            self.rows[handoff]["source_held_ms"] = now_ms
            self.reserve(handoff, now_ms)
        self.apply_commands(now_ms)
        for arrival_ms, index in self.arrivals.take(now_ms):
            self.rows[index]["arrival_ms"] = arrival_ms
            self.prefill.core.submit_handoff_prefill(index, self.request(index))
            self.prefill.touched = True

    def next_instant(self, now_ms: float) -> float | None:
        instant = super().next_instant(now_ms)
        if self.transfers and self.decode.idle:  # else the decode worker's pass end comes first or takes it
            done_ms = self.transfers[0][0]
            instant = done_ms if instant is None else min(instant, done_ms)
        return instant

    def reserve(self, handoff: int, now_ms: float) -> None:
        try:
            self.decode.core.reserve_destination(handoff, self.request(handoff))
        except ValueError:
            self.end_row(self.rows[handoff], "rejected", now_ms)
            self.to_release.append(handoff)
            return
        if self.decode.idle:
            self.attempt_grant(self.decode, now_ms)

    def apply_commands(self, now_ms: float) -> None:
        """Activations and releases whose worker is idle, until nothing is left to do at this instant."""
        while True:
            due = self.transfers and self.transfers[0][0] <= now_ms + SLACK_MS
            if due and self.decode.idle:
                self.activate(heapq.heappop(self.transfers)[2], now_ms)
            elif self.to_release and self.prefill.idle:
                self.release(self.to_release.pop(0), now_ms)
            else:
                return

    def activate(self, handoff: int, now_ms: float) -> None:
        assert self.decode.core.activate_destination(handoff)
        self.decode.touched = True
        self.rows[handoff]["destination_activated_ms"] = now_ms
        self.to_release.append(handoff)
        self.attempt_grant(self.decode, now_ms)

    def release(self, handoff: int, now_ms: float) -> None:
        assert self.prefill.core.release_source(handoff)
        self.prefill.touched = True
        self.rows[handoff]["source_released_ms"] = now_ms
        self.attempt_grant(self.prefill, now_ms)

    def attempt_grant(self, worker: Worker, now_ms: float) -> None:
        destination = worker.core.attempt_grant()
        worker.core.take_lifecycle()
        if destination is None:
            return
        worker.touched = True
        args = worker.core.args
        missing = args.kv_transfer_timing_mode == "destination_missing"
        tokens = destination.transferable_tokens if missing else destination.prompt_tokens
        handoff: Any = destination.handoff_id
        self.rows[handoff]["destination_reserved_ms"] = now_ms
        self.granted += 1
        heapq.heappush(self.transfers, (now_ms + args.transfer_delay_ms(tokens), self.granted, handoff))

    def note_admission(self, worker: Worker, index: Any, reused: int, now_ms: float) -> None:
        super().note_admission(worker, index, reused, now_ms)
        row = self.rows[index]
        key = "prefill_admit_ms" if worker is self.prefill else "decode_admit_ms"
        if row[key] is None:
            row[key] = now_ms
            if worker is self.decode:
                row["preemptions"] -= 1  # its first admission there is no readmission

    def note_output(
        self, worker: Worker, index: Any, token: int | None, completed: bool, rejected: bool, at_ms: float
    ) -> None:
        if worker is self.decode or rejected:  # a prefill's token is hidden
            super().note_output(worker, index, token, completed, rejected, at_ms)


def plain_replay(
    trace: Sequence[Row],
    engine_args: dict[str, Any] | None = None,
    *,
    prefill_engine_args: dict[str, Any] | None = None,
    decode_engine_args: dict[str, Any] | None = None,
    trace_block_size: int = 512,
    concurrency: int | None = None,
    num_workers: int = 1,
) -> list[Row]:
    """Rows of an aggregated replay, or of a disaggregated one if both roles' arguments are given."""
    if prefill_engine_args is not None and decode_engine_args is not None:
        prefill = PlainArgs.from_mapping(prefill_engine_args)
        decode = PlainArgs.from_mapping(decode_engine_args)
        return PlainDisaggReplay(trace, prefill, decode, trace_block_size=trace_block_size).run()
    replay = PlainReplay(
        trace,
        PlainArgs.from_mapping(engine_args or {}),
        trace_block_size=trace_block_size,
        concurrency=concurrency,
        num_workers=num_workers,
    )
    return replay.run()
