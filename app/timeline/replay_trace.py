"""Writes a replay as a trace for Perfetto while it runs: each pass at its end, each request when it is done.

Holds only what is under way. Knows the replay's observer call and the trace format, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

import orjson

from app.timeline.spans import Phase, PhaseSpans, to_us
from app.timeline.trace import Event, pass_events, process_events, request_events
from mocker_core.engine.offline import ReplayWorker
from mocker_core.engine.replay_report import ReplayRow
from mocker_core.engine_args import WorkerType
from mocker_core.errors import ArgumentError
from mocker_core.request import RequestId
from mocker_core.sched.output import EnginePassResult, FinishedRequest


class ReplayTrace:
    """A context: `follow(rows)` before the replay runs, `on_pass` at each pass's end.

    Raises ArgumentError if the file can't be written.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("wb")
        except OSError as error:
            raise ArgumentError(f"--trace-out {path} can't be written: {error.strerror}.") from None
        self._rows: Sequence[ReplayRow] = ()
        self._live: dict[RequestId, PhaseSpans] = {}
        self._prefilling: set[RequestId] = set()
        self._begun: set[RequestId] = set()  # had their first token
        self._workers: set[int] = set()
        self._separator = b'{"displayTimeUnit":"ms","traceEvents":[\n'

    def __enter__(self) -> ReplayTrace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.write(b"\n]}\n" if self._separator == b",\n" else self._separator + b"]}\n")
        self._file.close()

    def follow(self, rows: Sequence[ReplayRow]) -> None:
        """The rows of the replay: they know when a request arrived."""
        self._rows = rows

    def on_pass(self, worker: ReplayWorker, result: EnginePassResult) -> None:
        if worker.index not in self._workers:
            self._workers.add(worker.index)
            name = f"{worker.core.args.worker_type.value} worker {worker.index}"
            self._write(process_events(worker.index, name))
        for request_id in result.preempted:
            self._spans(request_id).enter(Phase.PREEMPTED, result.start_ms)
            self._prefilling.discard(request_id)
        for event in result.admissions:
            self._spans(event.request_id).enter(Phase.PREFILL, result.start_ms)
            self._prefilling.add(event.request_id)
        # A pass tells of a request's further tokens by their gaps only.
        tokens = sum(count for _, count in result.gaps)
        signalled = {request_id for request_id, _ in result.tokens}
        signalled |= {signal.request_id for signal in result.ends}
        for request_id in signalled & self._prefilling:
            self._prefilling.remove(request_id)
            self._spans(request_id).enter(Phase.DECODE, result.end_ms)
            if request_id not in self._begun:
                self._begun.add(request_id)
                tokens += 1
        for facts in result.finished:
            self._finish(worker, facts, result.end_ms)
        self._write_pass(worker, result, tokens)

    def _spans(self, request_id: RequestId) -> PhaseSpans:
        spans = self._live.get(request_id)
        if spans is None:
            spans = self._live[request_id] = PhaseSpans(self._rows[int(request_id)].arrival_ms or 0.0)
        return spans

    def _finish(self, worker: ReplayWorker, facts: FinishedRequest, end_ms: float) -> None:
        spans = self._spans(facts.request_id)
        self._begun.discard(facts.request_id)
        self._prefilling.discard(facts.request_id)
        if worker.core.args.worker_type is WorkerType.PREFILL and not facts.rejected:
            spans.enter(Phase.TRANSFER, end_ms)
            return
        del self._live[facts.request_id]
        spans.finish(end_ms)
        args = {
            "cached_tokens": facts.reused_input_tokens,
            "output_tokens": facts.output_tokens,
            "preemptions": facts.preemptions,
            "rejected": facts.rejected,
        }
        self._write(request_events(worker.index, f"request {facts.request_id}", spans.spans_at(end_ms), args))

    def _write_pass(self, worker: ReplayWorker, result: EnginePassResult, tokens: int) -> None:
        metrics = result.metrics
        self._write(
            pass_events(
                worker.index,
                to_us(result.start_ms),
                to_us(result.end_ms),
                running=metrics.running_requests,
                waiting=metrics.waiting_requests,
                used_blocks=metrics.active_decode_blocks,
                prefill_tokens=sum(chunk.tokens for chunk in result.prefill_chunks),
                output_tokens=tokens,
                preempted=len(result.preempted),
            )
        )

    def _write(self, events: Iterable[Event]) -> None:
        for event in events:
            self._file.write(self._separator + orjson.dumps(event))
            self._separator = b",\n"
