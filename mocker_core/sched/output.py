"""What one pass decided and produced: the single value that `execute_pass` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from mocker_core.events import (
    AdmissionEvent,
    KvEvent,
    OutputSignal,
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

    `outputs` are in running order, all stamped `end_ms`. `gaps` are the inter-token gaps that this
    pass closed, as (gap_ms, how many requests had it). `kv_events` are the pass's own.
    """

    start_ms: float
    end_ms: float
    outputs: list[OutputSignal]
    admissions: list[AdmissionEvent]
    metrics: MockerMetrics
    scheduled: bool
    finished: list[FinishedRequest] = field(default_factory=list)
    lifecycle: list[SchedulerLifecycleEvent] = field(default_factory=list)
    kv_events: tuple[KvEvent, ...] = ()
    preempted: list[RequestId] = field(default_factory=list)
    prefill_chunks: list[PrefillChunk] = field(default_factory=list)
    gaps: list[tuple[float, int]] = field(default_factory=list)
    fpm: ForwardPassMetrics | None = None

    @property
    def completed(self) -> int:
        """How many requests completed (rejected ones not counted)."""
        return sum(1 for request in self.finished if not request.rejected)

    def made_progress(self, metrics_before: MockerMetrics) -> bool:
        """Zero-progress test of engine.md section 6, but for commands and grants."""
        return bool(
            self.scheduled
            or self.outputs
            or self.admissions
            or self.lifecycle
            or self.kv_events
            or self.metrics != metrics_before
        )
