"""A core and a listener whose every call is in one log, and an engine made of them in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from mocker_core.commands import (
    ActivateDestination,
    Applied,
    CancelDestination,
    CancelRequest,
    CancelSource,
    CommandEffects,
    CommandResult,
    DestinationAccepted,
    Noop,
    ReleaseSource,
    ReserveDestination,
    SchedulerCommand,
    Submit,
    SubmitHandoffPrefill,
    Submitted,
    TickEffects,
)
from mocker_core.engine.pricing import Pricing
from mocker_core.engine_args import MockEngineArgs
from mocker_core.errors import RequestError
from mocker_core.events import (
    AdmissionEvent,
    BlocksCleared,
    DestinationReserved,
    KvEvent,
    OutputSignal,
    PlainToken,
    SchedulerLifecycleEvent,
    SourceHeld,
)
from mocker_core.live.engine import MockEngine
from mocker_core.live.live_ids import brought_request
from mocker_core.live.publisher import PublishedEffect
from mocker_core.metrics import ForwardPassMetrics, LengthStats, MockerMetrics
from mocker_core.request import DirectRequest, HandoffId, RequestId
from mocker_core.sched.output import EnginePassResult, FinishedRequest
from tests.harness.virtual_loop import VirtualClock, run_virtual, spend_ms

Log = list[tuple[Any, ...]]


def make_request(name: str, tokens: int = 1, **more: Any) -> DirectRequest:
    return DirectRequest(request_id=RequestId(name), tokens=(1, 2, 3), max_output_tokens=tokens, **more)


@dataclass
class FakeCore:
    """Every request that it has gets one token per pass of `pass_ms`; a prompt of 13 is refused in commands.

    `work_ms` is what a pass costs the loop. With `blocked` a pass does nothing in no time. A destination
    is granted whenever that is allowed and `may_grant`. Each dropped request leaves a KV event.
    """

    dp_rank: int = 0
    log: Log = field(default_factory=list)
    pass_ms: float = 10.0
    work_ms: float = 0.0
    blocked: bool = False
    may_grant: bool = True
    deadline_ms: float | None = None
    deadline_stays: bool = False
    fails: Exception | None = None

    def __post_init__(self) -> None:
        self.left: dict[RequestId, int] = {}
        self.new: list[RequestId] = []
        self.sources: dict[HandoffId, RequestId] = {}
        self.held: set[HandoffId] = set()
        self.destinations: dict[HandoffId, DirectRequest] = {}
        self.pending: list[HandoffId] = []
        self._kv_events: list[KvEvent] = []
        self._event_id = 0
        self.passes = 0

    def is_empty(self) -> bool:
        return not self.left

    def receive(self, request: DirectRequest) -> None:
        self.log.append(("receive", request.request_id))
        self._add(request.request_id, request.num_output_tokens)

    def execute_pass(self, now_ms: float) -> EnginePassResult:
        self.log.append(("pass", now_ms))
        if self.fails is not None:
            raise self.fails
        if self.work_ms:
            spend_ms(self.work_ms)
        self.passes += 1
        if self.blocked:
            return EnginePassResult(now_ms, now_ms, [], self.metrics(), scheduled=False)
        result = EnginePassResult(
            start_ms=now_ms,
            end_ms=now_ms + self.pass_ms,
            admissions=[AdmissionEvent(request_id, 0) for request_id in self.new],
            metrics=self.metrics(),
            scheduled=bool(self.left),
            kv_events=(self.kv_event(),) if self.new else (),
            fpm=_fpm(self.dp_rank, self.passes, now_ms, self.pass_ms),
        )
        self.new = []
        for request_id in list(self.left):
            self._token(request_id, result)
        result.metrics = self.metrics()
        return result

    def cancel(self, request_id: RequestId, now_ms: float) -> bool:
        self.log.append(("cancel", request_id, now_ms))
        return self._drop(request_id)

    def apply_command(
        self, command: SchedulerCommand, *, allow_destination_grant: bool, now_ms: float
    ) -> CommandEffects:
        self.log.append(("command", type(command).__name__, allow_destination_grant, now_ms))
        kv_before = len(self._kv_events)
        result = self._apply(command)
        attempts = allow_destination_grant and isinstance(result, Applied | DestinationAccepted)
        lifecycle = self._grant() if attempts else ()
        events, self._kv_events[kv_before:] = tuple(self._kv_events[kv_before:]), []
        return CommandEffects(result, lifecycle, events)

    def retry_destinations(self, now_ms: float) -> TickEffects:
        self.log.append(("retry", now_ms))
        lifecycle = self._grant()
        return TickEffects(lifecycle, granted=bool(lifecycle))

    def advance(self, now_ms: float, *, allow_destination_grant: bool) -> TickEffects:
        self.log.append(("advance", now_ms, allow_destination_grant))
        if not self.deadline_stays:
            self.deadline_ms = None
        lifecycle = self._grant() if allow_destination_grant else ()
        return TickEffects(lifecycle, (self.kv_event(),), granted=bool(lifecycle))

    def next_deadline_ms(self) -> float | None:
        return self.deadline_ms

    def reset_prefix_cache(self, now_ms: float) -> bool:
        self.log.append(("reset", now_ms))
        return not self.left

    def preempt_all(self, now_ms: float) -> int:
        self.log.append(("preempt", now_ms))
        return len(self.left)

    def reprice(self, pricing: Pricing) -> None:
        self.log.append(("reprice",))

    def take_kv_events(self) -> tuple[KvEvent, ...]:
        events, self._kv_events = tuple(self._kv_events), []
        return events

    def metrics(self) -> MockerMetrics:
        return MockerMetrics(self.dp_rank, len(self.left), 100, len(self.left) / 100, len(self.left), 0, 0)

    def kv_event(self) -> BlocksCleared:
        self._event_id += 1
        return BlocksCleared(self._event_id)

    def _add(self, request_id: RequestId, tokens: int) -> None:
        assert request_id not in self.left, "an id may be alive only once"
        self.left[request_id] = tokens
        self.new.append(request_id)

    def _drop(self, request_id: RequestId) -> bool:
        known = self.left.pop(request_id, None) is not None
        for handoff_id, source in list(self.sources.items()):
            if source == request_id:
                del self.sources[handoff_id]
                self.held.discard(handoff_id)
                known = True
        for handoff_id, request in list(self.destinations.items()):
            if request.request_id == request_id:
                del self.destinations[handoff_id]
                if handoff_id in self.pending:
                    self.pending.remove(handoff_id)
                known = True
        if request_id in self.new:
            self.new.remove(request_id)
        if known:
            self._kv_events.append(self.kv_event())
        return known

    def _token(self, request_id: RequestId, result: EnginePassResult) -> None:
        self.left[request_id] -= 1
        done = self.left[request_id] <= 0
        handoff_id = next((h for h, r in self.sources.items() if r == request_id), None)
        if not done:
            result.tokens.append((request_id, 7))
            return
        result.add_end(OutputSignal(request_id, 7, True, hidden=handoff_id is not None))
        del self.left[request_id]
        result.finished.append(FinishedRequest(request_id, False, None, None, None, 1, 0, 0))
        if handoff_id is not None:
            self.held.add(handoff_id)
            result.lifecycle.append(SourceHeld(handoff_id, request_id, None, 3))
        for handoff, request in list(self.destinations.items()):
            if request.request_id == request_id:
                del self.destinations[handoff]

    def _apply(self, command: SchedulerCommand) -> CommandResult:
        request = brought_request(command)
        if request is not None and request.num_prompt_tokens == 13:
            raise RequestError("a prompt of 13 tokens is refused; send any other.")
        match command:
            case Submit(request):
                self._add(request.request_id, request.num_output_tokens)
                return Submitted(request.request_id)
            case SubmitHandoffPrefill(handoff_id, request):
                self._add(request.request_id, 1)
                self.sources[handoff_id] = request.request_id
                return Submitted(request.request_id)
            case ReserveDestination(handoff_id, request):
                self.destinations[handoff_id] = request
                self.pending.append(handoff_id)
                return DestinationAccepted(request.request_id)
            case ActivateDestination(handoff_id):
                known = handoff_id in self.destinations and handoff_id not in self.pending
                if known:
                    request = self.destinations[handoff_id]
                    self._add(request.request_id, request.num_output_tokens)
            case CancelRequest(request_id):
                known = self._drop(request_id)
            case ReleaseSource(handoff_id):
                known = handoff_id in self.held and self._drop(self.sources[handoff_id])
            case CancelSource(handoff_id):
                known = handoff_id in self.sources and self._drop(self.sources[handoff_id])
            case CancelDestination(handoff_id):
                known = handoff_id in self.destinations
                if known:
                    self._drop(self.destinations[handoff_id].request_id)
        return Applied() if known else Noop()

    def _grant(self) -> tuple[SchedulerLifecycleEvent, ...]:
        if not self.pending or not self.may_grant:
            return ()
        handoff_id = self.pending.pop(0)
        return (DestinationReserved(handoff_id, self.destinations[handoff_id].request_id, 4),)


def _fpm(dp_rank: int, index: int, start_ms: float, wall_ms: float) -> ForwardPassMetrics:
    none = LengthStats()
    return ForwardPassMetrics(dp_rank, index, start_ms, wall_ms, none, none, none, none, 0)


class RecordingListener:
    """Writes each call into the log; `gone` are the requests whose receiver went away."""

    def __init__(self, log: Log, now_ms: Callable[[], float] = lambda: 0.0) -> None:
        self.log = log
        self.now_ms = now_ms
        self.gone: set[RequestId] = set()
        self.tokens: dict[str, list[float]] = {}
        self.published_ms: dict[str, list[float]] = {}
        self.ended: dict[RequestId, int] = {}
        self.dead: list[tuple[int, list[RequestId], str]] = []
        self.metrics: list[MockerMetrics] = []
        self.lifecycle: list[SchedulerLifecycleEvent] = []
        self.work_ms = 0.0
        self.fails_in: str | None = None
        self.on_first_lifecycle: Callable[[], None] | None = None

    def on_pass_start(self, dp_rank: int, result: EnginePassResult) -> None:
        self.log.append(("on_pass_start", [event.request_id for event in result.admissions]))

    def on_kv_events(self, dp_rank: int, events: Sequence[KvEvent]) -> None:
        self.log.append(("on_kv_events", [event.event_id for event in events]))

    def on_fpm(self, dp_rank: int, fpm: ForwardPassMetrics) -> None:
        self.log.append(("on_fpm", fpm.pass_index))

    def on_outputs(
        self,
        dp_rank: int,
        result: EnginePassResult,
        tokens: Sequence[PlainToken],
        ends: Sequence[OutputSignal],
    ) -> Collection[RequestId]:
        # In running order, without those that the publisher left out.
        left = {request_id for request_id, *_ in (*tokens, *ends)}
        outputs = [signal for signal in result.outputs if signal.request_id in left]
        self.log.append(("on_outputs", [signal.request_id for signal in outputs], result.end_ms))
        self._fail("on_outputs")
        for signal in outputs:
            self.tokens.setdefault(signal.request_id, []).append(result.end_ms)
            self.published_ms.setdefault(signal.request_id, []).append(self.now_ms())
            if signal.completed:
                self.ended[signal.request_id] = self.ended.get(signal.request_id, 0) + 1
        if self.work_ms:
            spend_ms(self.work_ms)
        return [signal.request_id for signal in outputs if signal.request_id in self.gone]

    def on_lifecycle(self, dp_rank: int, event: SchedulerLifecycleEvent) -> None:
        self.log.append(("on_lifecycle", type(event).__name__))
        self.lifecycle.append(event)
        if self.on_first_lifecycle is not None:
            self.on_first_lifecycle()
            self.on_first_lifecycle = None
        self._fail("on_lifecycle")

    def on_metrics(self, dp_rank: int, metrics: MockerMetrics) -> None:
        self.log.append(("on_metrics",))
        self.metrics.append(metrics)

    def flush(self) -> None:
        self.log.append(("flush",))

    def on_dead(self, dp_rank: int, request_ids: Sequence[RequestId], reason: str) -> None:
        self.log.append(("on_dead", list(request_ids)))
        self.dead.append((dp_rank, list(request_ids), reason))
        self._fail("on_dead")

    def _fail(self, where: str) -> None:
        if self.fails_in == where:
            raise ValueError(f"the listener fails in {where}")


@dataclass
class Live:
    """An engine of fakes, running."""

    engine: MockEngine
    cores: list[FakeCore]
    listener: RecordingListener
    log: Log
    effects: list[PublishedEffect]

    @property
    def core(self) -> FakeCore:
        return self.cores[0]

    def submit(self, name: str, tokens: int = 1, dp_rank: int | None = None) -> int:
        return self.engine.submit(make_request(name, tokens), dp_rank)

    def send(self, command: SchedulerCommand) -> asyncio.Task[CommandEffects]:
        """Send a command without waiting for its reply."""
        return asyncio.get_running_loop().create_task(self.engine.command(command))

    def logged(self, *kinds: str) -> Log:
        return [entry for entry in self.log if entry[0] in kinds]


async def sleep_ms(ms: float) -> None:
    await asyncio.sleep(ms / 1000.0)


def run_live(
    scenario: Callable[[Live], Awaitable[None]],
    *,
    slice_ms: float = 2.0,
    core: dict[str, Any] | None = None,
    **args: Any,
) -> Live:
    """Run `scenario` against a started engine of fakes in virtual time, then stop the engine."""

    async def main() -> Live:
        log: Log = []
        cores: list[FakeCore] = []
        clock = VirtualClock()

        def make_core(_: MockEngineArgs, dp_rank: int) -> FakeCore:
            cores.append(FakeCore(dp_rank, log, **(core or {})))
            return cores[-1]

        listener = RecordingListener(log, clock.now_ms)
        effects: list[PublishedEffect] = []
        engine = MockEngine(
            MockEngineArgs(**args),
            listener,
            clock=clock,
            core_factory=make_core,
            slice_ms=slice_ms,
            effect_log=effects,
        )
        await engine.start()
        live = Live(engine, cores, listener, log, effects)
        try:
            await scenario(live)
        finally:
            await engine.stop()
        return live

    return run_virtual(main())
