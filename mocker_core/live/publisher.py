"""The one publisher of a rank: everything the outside learns of it goes through here, in one order.

Owns the order of effects, what is held back until a pass boundary, and the latest metrics. Decides
nothing about time; the tests' `PublishedEffect` log is written here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import NamedTuple

from mocker_core.commands import Applied, CommandEffects, Noop, TickEffects
from mocker_core.errors import MockerError
from mocker_core.events import KvEvent, SchedulerLifecycleEvent
from mocker_core.live.channels import Cancellation, CommandEnvelope, CoreCall, LifecycleChannel
from mocker_core.live.live_ids import LiveIds
from mocker_core.live.protocols import EngineListener, LiveCore
from mocker_core.metrics import MockerMetrics
from mocker_core.request import RequestId
from mocker_core.sched.output import EnginePassResult


class EffectKind(StrEnum):
    PASS_START = "pass_start"
    KV_EVENTS = "kv_events"
    FPM = "fpm"
    OUTPUTS = "outputs"
    REPLY = "reply"
    LIFECYCLE = "lifecycle"
    METRICS = "metrics"


class PublishedEffect(NamedTuple):
    """One entry of the log of effects, for tests that assert their order."""

    kind: EffectKind
    detail: object


class LiveEffectsPublisher:
    """Publishes one rank's effects. `on_lifecycle_full` is awaited while the lifecycle channel is full;
    it answers False once the loop is to end.
    """

    def __init__(
        self,
        dp_rank: int,
        core: LiveCore,
        listener: EngineListener,
        ids: LiveIds,
        lifecycle: LifecycleChannel,
        log: list[PublishedEffect] | None = None,
    ) -> None:
        self._dp_rank = dp_rank
        self._core = core
        self._listener = listener
        self._ids = ids
        self._lifecycle = lifecycle
        self._log = log
        self.on_lifecycle_full: Callable[[], Awaitable[bool]] = _no_room
        self.latest_metrics = core.metrics()
        self._current_metrics = self.latest_metrics
        self._stale = False
        # Held back until the pass boundary:
        self._kv_events: list[KvEvent] = []
        self._cleanup_kv_events: list[KvEvent] = []
        self._lifecycle_events: list[SchedulerLifecycleEvent] = []
        self._suppressed: set[RequestId] = set()

    def flush(self) -> None:
        """The loop is about to wait or yield."""
        self._listener.flush()

    def core_changed(self) -> None:
        """Something other than a pass touched the core: its metrics must be read anew."""
        self._stale = True

    def current_metrics(self) -> MockerMetrics:
        """The core's metrics now, published or not."""
        if self._stale:
            self._current_metrics = self._core.metrics()
            self._stale = False
        return self._current_metrics

    def publish_pass_start(self, result: EnginePassResult) -> None:
        """What is visible at once: admissions, preemptions, prefill chunks; then the pass's own KV events."""
        self._current_metrics = result.metrics
        self._stale = False
        if result.admissions or result.preempted or result.prefill_chunks:
            self._listener.on_pass_start(self._dp_rank, result)
            self._record(EffectKind.PASS_START, result)
        self.publish_kv_events(result.kv_events)

    def hold_back(self, effects: CommandEffects | TickEffects) -> None:
        """Keep the effects of a command or of time alone, had during a pass, for its boundary.

        They go behind a waiting clean-up, if there is one: KV events leave in the order of their ids.
        """
        self._stale = True
        queue = self._cleanup_kv_events if self._cleanup_kv_events else self._kv_events
        queue.extend(effects.kv_events)
        self._lifecycle_events.extend(effects.lifecycle)

    def suppress(self, request_id: RequestId) -> None:
        """It was cancelled during the pass: no output of that pass, and its clean-up at the boundary."""
        self._stale = True
        self._suppressed.add(request_id)
        self._cleanup_kv_events.extend(self._core.take_kv_events())

    async def publish_pass(self, result: EnginePassResult) -> None:
        """What is visible at the pass end, in the order of the contract."""
        if self._kv_events:
            self.publish_kv_events(self._kv_events)
            self._kv_events = []
        if result.fpm is not None:
            self._listener.on_fpm(self._dp_rank, result.fpm)
            self._record(EffectKind.FPM, result.fpm)
        self._publish_outputs(result)
        self._cleanup_kv_events.extend(self._core.take_kv_events())
        if self._cleanup_kv_events:
            self.publish_kv_events(self._cleanup_kv_events)
            self._cleanup_kv_events = []
        if result.lifecycle or self._lifecycle_events:
            suppressed = self._suppressed
            own = [event for event in result.lifecycle if event.request_id not in suppressed]
            events = self._lifecycle_events + own
            self._lifecycle_events = []
            self._suppressed = set()
            await self.publish_lifecycle(events)
        elif self._suppressed:
            self._suppressed = set()
        self.publish_metrics()

    async def publish_effects(self, effects: TickEffects) -> None:
        """Effects of time alone or of a granted destination, outside a pass."""
        self._stale = True
        self.publish_kv_events(effects.kv_events)
        await self.publish_lifecycle(effects.lifecycle)
        self.publish_metrics()

    async def publish_command(self, envelope: CommandEnvelope, effects: CommandEffects) -> None:
        """Effects of a command outside a pass."""
        self._stale = True
        self.publish_kv_events(effects.kv_events)
        self.reply(envelope, effects)
        await self.publish_lifecycle(effects.lifecycle)
        self.publish_metrics()

    def publish_cancellation(self, cancellation: Cancellation, result: Applied | Noop) -> None:
        """A cancellation outside a pass; the caller publishes the metrics after the last one."""
        self._stale = True
        self.publish_kv_events(self._core.take_kv_events())
        self.reply_cancellation(cancellation, result)

    def publish_call(self, call: CoreCall, now_ms: float) -> None:
        """Make a call outside a pass: its KV events, then its reply; the caller publishes the metrics."""
        self._stale = True
        try:
            value = call.act(self._core, now_ms)
        except MockerError as error:
            call.reply.fail(error)
        else:
            self.publish_kv_events(self._core.take_kv_events())
            call.reply.send(value)

    def hold_back_call(self, call: CoreCall, now_ms: float) -> None:
        """Make a call during a pass: the reply goes out at once, its KV events at the boundary."""
        self._stale = True
        try:
            value = call.act(self._core, now_ms)
        except MockerError as error:
            call.reply.fail(error)
        else:
            self._cleanup_kv_events.extend(self._core.take_kv_events())
            call.reply.send(value)

    def reply(self, envelope: CommandEnvelope, effects: CommandEffects) -> None:
        envelope.reply.send(effects)
        self._record(EffectKind.REPLY, effects.result)

    def refuse(self, envelope: CommandEnvelope, error: MockerError) -> None:
        envelope.reply.fail(error)
        self._record(EffectKind.REPLY, error)

    def reply_cancellation(self, cancellation: Cancellation, result: Applied | Noop) -> None:
        if cancellation.reply is not None:
            cancellation.reply.send(result)
            self._record(EffectKind.REPLY, result)

    def publish_kv_events(self, events: Sequence[KvEvent]) -> None:
        if events:
            self._listener.on_kv_events(self._dp_rank, events)
            self._record(EffectKind.KV_EVENTS, tuple(events))

    async def publish_lifecycle(self, events: Sequence[SchedulerLifecycleEvent]) -> None:
        """Put them into the lifecycle channel, waiting while it is full."""
        if not events:
            return
        self._ids.expired(events)
        for event in events:
            while not self._lifecycle.try_send(event):
                if not await self.on_lifecycle_full():
                    return
            self._record(EffectKind.LIFECYCLE, event)

    def publish_metrics(self) -> None:
        metrics = self.current_metrics()
        self.latest_metrics = metrics
        self._listener.on_metrics(self._dp_rank, metrics)
        self._record(EffectKind.METRICS, metrics)

    def _publish_outputs(self, result: EnginePassResult) -> None:
        tokens, ends = result.tokens, result.ends
        suppressed = self._suppressed
        if suppressed:
            tokens = [token for token in tokens if token[0] not in suppressed]
            ends = [signal for signal in ends if signal.request_id not in suppressed]
        if tokens or ends or result.scheduled:
            gone = self._listener.on_outputs(self._dp_rank, result, tokens, ends)
            if self._log is not None:
                self._record(EffectKind.OUTPUTS, [*tokens, *ends])
        else:
            gone = ()
        for finished in result.finished:
            if finished.request_id not in suppressed:
                self._ids.finished(finished)
        for request_id in gone:
            # A held source belongs to its handoff now, whoever listens for tokens.
            if not self._ids.is_held(request_id) and self._core.cancel(request_id, result.end_ms):
                self._stale = True
                self._ids.end(request_id)

    def _record(self, kind: EffectKind, detail: object) -> None:
        if self._log is not None:
            self._log.append(PublishedEffect(kind, detail))


async def _no_room() -> bool:
    return False
