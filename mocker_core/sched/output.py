"""What one pass decided and produced: the single value that `execute_pass` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from mocker_core.events import (
    AdmissionEvent,
    KvEvent,
    OutputSignal,
    PlainToken,
    PrefillChunk,
    SchedulerLifecycleEvent,
)
from mocker_core.metrics import ForwardPassMetrics, MockerMetrics
from mocker_core.request import RequestId


class FinishedRequest(NamedTuple):
    """The facts of a request that ended in a pass. Times in ms of engine time; None where it never came so
    far.
    """

    request_id: RequestId
    rejected: bool
    first_admit_ms: float | None
    first_token_ms: float | None
    last_token_ms: float | None
    output_tokens: int
    reused_input_tokens: int
    preemptions: int


@dataclass(slots=True)
class EnginePassResult:
    """One pass, complete. Nothing of it is visible outside until the publisher publishes it.

    Its outputs, all stamped `end_ms`: `tokens` of requests that go on, and `ends`, the last signal of each of
    the others; both in running order. `end_places` has for each end how many of `tokens` come before it.
    `gaps` are the inter-token gaps that this pass closed, as (gap_ms, how many requests had it). `kv_events`
    are the pass's own.
    """

    start_ms: float
    end_ms: float
    admissions: list[AdmissionEvent]
    metrics: MockerMetrics
    scheduled: bool
    tokens: list[PlainToken] = field(default_factory=list)
    ends: list[OutputSignal] = field(default_factory=list)
    end_places: list[int] = field(default_factory=list)
    finished: list[FinishedRequest] = field(default_factory=list)
    lifecycle: list[SchedulerLifecycleEvent] = field(default_factory=list)
    kv_events: tuple[KvEvent, ...] = ()
    preempted: list[RequestId] = field(default_factory=list)
    prefill_chunks: list[PrefillChunk] = field(default_factory=list)
    gaps: list[tuple[float, int]] = field(default_factory=list)
    fpm: ForwardPassMetrics | None = None

    def add_end(self, signal: OutputSignal) -> None:
        """The last signal of a request, behind the tokens so far."""
        self.ends.append(signal)
        self.end_places.append(len(self.tokens))

    @property
    def outputs(self) -> list[OutputSignal]:
        """Tokens and ends as one list in running order. Made anew each time: not for the hot path."""
        merged: list[OutputSignal] = []
        first = 0
        for place, signal in zip(self.end_places, self.ends, strict=True):
            merged += [OutputSignal(*token, completed=False) for token in self.tokens[first:place]]
            merged.append(signal)
            first = place
        return merged + [OutputSignal(*token, completed=False) for token in self.tokens[first:]]

    @property
    def completed(self) -> int:
        """How many requests completed (rejected ones not counted)."""
        return sum(1 for request in self.finished if not request.rejected)

    def made_progress(self, metrics_before: MockerMetrics) -> bool:
        """Zero-progress test of engine.md section 6, but for commands and grants."""
        return bool(
            self.scheduled
            or self.tokens
            or self.ends
            or self.admissions
            or self.preempted
            or self.lifecycle
            or self.kv_events
            or self.metrics != metrics_before
        )
