"""The two seams of the live loop: the core it drives and the listener it publishes to.

A fake of either lets a test assert the loop's whole order of effects.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from mocker_core.commands import CommandEffects, SchedulerCommand, TickEffects
from mocker_core.engine.pricing import Pricing
from mocker_core.events import KvEvent, OutputSignal, PlainToken, SchedulerLifecycleEvent
from mocker_core.metrics import ForwardPassMetrics, MockerMetrics
from mocker_core.request import DirectRequest, RequestId
from mocker_core.sched.output import EnginePassResult


class LiveCore(Protocol):
    """The engine core of one rank; `engine.core.EngineCore` is the real one. Times in ms since start."""

    def is_empty(self) -> bool:
        """No request waits or runs (held sources, pending destinations and parked requests don't count)."""

    def receive(self, request: DirectRequest) -> None: ...

    def execute_pass(self, now_ms: float) -> EnginePassResult: ...

    def cancel(self, request_id: RequestId, now_ms: float) -> bool:
        """Remove a request wherever it is and free its KV; False if it is unknown or ended."""

    def apply_command(
        self, command: SchedulerCommand, *, allow_destination_grant: bool, now_ms: float
    ) -> CommandEffects:
        """Raises MockerError if the command is refused; then nothing changed."""

    def retry_destinations(self, now_ms: float) -> TickEffects: ...

    def advance(self, now_ms: float, *, allow_destination_grant: bool) -> TickEffects:
        """Do what is due by time alone: finished transfers, expired holds."""

    def next_deadline_ms(self) -> float | None: ...

    def reset_prefix_cache(self, now_ms: float) -> bool:
        """Forget every cached block of every tier; False, and nothing changed, while a block is in use."""

    def preempt_all(self, now_ms: float) -> int:
        """Put every running request back into the queue without its KV; returns how many."""

    def reprice(self, pricing: Pricing) -> None:
        """Let passes cost what `pricing` says, from the next one on."""

    def take_kv_events(self) -> tuple[KvEvent, ...]:
        """Drain the KV events not yet given out (clean-ups of cancellations)."""

    def metrics(self) -> MockerMetrics: ...


class EngineListener(Protocol):
    """Where the publisher delivers; called on the event loop, synchronously, must not block or raise."""

    def on_pass_start(self, dp_rank: int, result: EnginePassResult) -> None:
        """Admissions (and preemptions, prefill chunks) of a pass become visible."""

    def on_kv_events(self, dp_rank: int, events: Sequence[KvEvent]) -> None: ...

    def on_fpm(self, dp_rank: int, fpm: ForwardPassMetrics) -> None: ...

    def on_outputs(
        self,
        dp_rank: int,
        result: EnginePassResult,
        tokens: Sequence[PlainToken],
        ends: Sequence[OutputSignal],
    ) -> Collection[RequestId]:
        """Deliver one pass's outputs, the result's own but for requests cancelled meanwhile.

        Returns the ids whose receiver is gone (they are dropped).
        """

    def on_lifecycle(self, dp_rank: int, event: SchedulerLifecycleEvent) -> None: ...

    def on_metrics(self, dp_rank: int, metrics: MockerMetrics) -> None: ...

    def flush(self) -> None:
        """The loop is about to wait or yield: write out everything delivered since the last flush."""

    def on_dead(self, dp_rank: int, request_ids: Sequence[RequestId], reason: str) -> None:
        """The rank stopped or died; these requests will never get another token."""
