"""Follows every request and every pass of a server: fills the records, and tells who wants to know.

Owns the records of live and recent requests and the ring of recent passes. All its work is per pass or per
request, never per token. Hears of the engine as an `EngineObserver` and of requests as a `RequestObserver`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from app.dispatch import EngineObserver
from app.openai.answer import RunGroup
from app.openai.choice import ChoiceRun, Outcome
from app.timeline.record import RequestRecord
from app.timeline.spans import Phase
from mocker_core.events import DestinationReserved, SchedulerLifecycleEvent
from mocker_core.request import HandoffId, RequestId
from mocker_core.sched.output import EnginePassResult

if TYPE_CHECKING:
    from app.state import AppState

STATE_KEY = "timeline"
PASSES_KEPT = 16384
SIBLINGS_KEPT = 64


class PassFacts(NamedTuple):
    """One pass as trace and curves need it. Times in ms of engine time."""

    dp_rank: int
    start_ms: float
    end_ms: float
    running: int
    waiting: int
    used_blocks: int
    prefill_tokens: int
    output_tokens: int
    preempted: int


class RecordListener:
    """Base of those who want to know of requests. Override what is needed; called on the event loop."""

    def on_first_admission(self, record: RequestRecord) -> None:
        """A pass took it in for the first time; what the cache had of it is known."""

    def on_first_token(self, record: RequestRecord) -> None:
        """Its first token was delivered at `record.first_token_us`."""

    def on_end(self, record: RequestRecord, run: ChoiceRun) -> None:
        """It ended, and the record is complete. Don't keep `run`."""

    def on_pass(self, facts: PassFacts, result: EnginePassResult) -> None:
        """A pass ended."""


class RequestTracker(EngineObserver):
    """`activated_ms` says when a handoff's destination was activated, if it was."""

    def __init__(
        self,
        now_ms: Callable[[], float],
        keep: int,
        activated_ms: Callable[[HandoffId], float | None] = lambda _: None,
    ) -> None:
        self.now_ms = now_ms
        self.live: dict[RequestId, RequestRecord] = {}
        self.ended: dict[RequestId, RequestRecord] = {}
        self.passes: deque[PassFacts] = deque(maxlen=PASSES_KEPT)
        self.listeners: list[RecordListener] = []
        self._keep = keep
        self._activated_ms = activated_ms
        # Admitted, and no token since.
        self._prefilling: dict[RequestId, RequestRecord] = {}

    def find(self, request_id: str) -> RequestRecord | None:
        """A live or recent request by the engine's id."""
        key = RequestId(request_id)
        return self.live.get(key) or self.ended.get(key)

    def recent(self, limit: int) -> list[RequestRecord]:
        """The latest ended ones, latest first."""
        keys = list(self.ended)[-limit:] if limit > 0 else []
        return [self.ended[key] for key in reversed(keys)]

    def on_request_start(self, run: ChoiceRun) -> None:
        answer = run.answer
        model = ""
        siblings: tuple[RequestId, ...] = ()
        if isinstance(answer, RunGroup):
            model = answer.model
            if len(answer.runs) > 1:
                others = answer.runs[:SIBLINGS_KEPT]
                siblings = tuple(other.request_id for other in others if other is not run)
        self.live[run.request_id] = RequestRecord(run, model, siblings, time.time())

    def on_request_end(self, run: ChoiceRun) -> None:
        record = self.live.get(run.request_id)
        if record is None or record.run is not run:
            return
        del self.live[run.request_id]
        self._prefilling.pop(run.request_id, None)
        at_ms = self.now_ms()
        if run.outcome is Outcome.COMPLETED and run.last_token_ms is not None:
            at_ms = run.last_token_ms
        if record.first_token_us is None and run.first_token_ms is not None:
            # With its last one, or its tokens were delayed past the end of all passes.
            self._first_token(record, run.first_token_ms)
            record.spans.enter(Phase.DECODE, run.first_token_ms)
        record.finish(at_ms)
        for listener in self.listeners:
            listener.on_end(record, run)
        self.ended.pop(run.request_id, None)
        self.ended[run.request_id] = record
        if len(self.ended) > self._keep:
            del self.ended[next(iter(self.ended))]

    def on_pass_start(self, dp_rank: int, result: EnginePassResult) -> None:
        live, start_ms = self.live, result.start_ms
        for request_id in result.preempted:
            if (record := live.get(request_id)) is not None:
                record.preempt(start_ms)
                self._prefilling.pop(request_id, None)
        for event in result.admissions:
            if (record := live.get(event.request_id)) is not None:
                self._leave_transfer(record)
                record.admit(start_ms, dp_rank, event.reused_input_tokens, again=event.readmission)
                self._prefilling[event.request_id] = record
                if not event.readmission:
                    for listener in self.listeners:
                        listener.on_first_admission(record)
        for chunk in result.prefill_chunks:
            if (record := live.get(chunk.request_id)) is not None:
                record.add_chunk(start_ms, result.end_ms, chunk.tokens)

    def on_pass_end(self, dp_rank: int, result: EnginePassResult) -> None:
        if self._prefilling:
            self._end_prefills(result.end_ms)
        metrics = result.metrics
        # Hot: once per pass.
        output_tokens = len(result.tokens) + len(result.ends)
        for facts in result.finished:
            if facts.rejected or not facts.output_tokens:
                output_tokens -= 1
        prefill_tokens = 0
        for chunk in result.prefill_chunks:
            prefill_tokens += chunk.tokens
        passed = PassFacts(
            dp_rank,
            result.start_ms,
            result.end_ms,
            metrics.running_requests,
            metrics.waiting_requests,
            metrics.active_decode_blocks,
            prefill_tokens,
            output_tokens,
            len(result.preempted),
        )
        self.passes.append(passed)
        for listener in self.listeners:
            listener.on_pass(passed, result)

    def on_lifecycle(self, dp_rank: int, event: SchedulerLifecycleEvent) -> None:
        if not isinstance(event, DestinationReserved):
            return
        record = self.live.get(event.request_id)
        if record is not None:
            record.handoff_id = event.handoff_id
            record.external_tokens = min(record.prompt_tokens, event.transferable_prompt_tokens)
            record.cached_tokens = record.prompt_tokens - record.external_tokens
            record.spans.enter(Phase.TRANSFER, self.now_ms())

    def _end_prefills(self, end_ms: float) -> None:
        """Whoever has a token since its admission decodes now."""
        done: list[RequestId] = []
        for request_id, record in self._prefilling.items():
            run = record.run
            if run is None or run.generated > record.generated_before:
                done.append(request_id)
                if run is not None:
                    at_ms = end_ms
                    if record.first_token_us is None and run.first_token_ms is not None:
                        at_ms = run.first_token_ms
                        self._first_token(record, at_ms)
                    record.spans.enter(Phase.DECODE, at_ms)
        for request_id in done:
            del self._prefilling[request_id]

    def _first_token(self, record: RequestRecord, at_ms: float) -> None:
        record.first_token_us = round(at_ms * 1000.0)
        for listener in self.listeners:
            listener.on_first_token(record)

    def _leave_transfer(self, record: RequestRecord) -> None:
        """From its activation on a destination waited for a pass like any other request."""
        if record.spans.phase is Phase.TRANSFER and record.handoff_id is not None:
            activated_ms = self._activated_ms(record.handoff_id)
            if activated_ms is not None:
                record.spans.enter(Phase.QUEUE, activated_ms)


def tracker_of(state: AppState) -> RequestTracker:
    """A server's tracker."""
    tracker: RequestTracker = state.extras[STATE_KEY]
    return tracker
