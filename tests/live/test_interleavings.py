"""Random interleavings of everything a rank can be sent: every accepted request ends exactly once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mocker_core.commands import (
    ActivateDestination,
    Applied,
    CancelDestination,
    CancelRequest,
    CancelSource,
    DestinationAccepted,
    ReleaseSource,
    ReserveDestination,
    Submit,
    SubmitHandoffPrefill,
    Submitted,
)
from mocker_core.engine.core import EngineCore
from mocker_core.engine_args import MockEngineArgs, WorkerType
from mocker_core.errors import MockerError
from mocker_core.events import DestinationExpired, SchedulerLifecycleEvent, SourceExpired
from mocker_core.live.engine import MockEngine
from mocker_core.live.protocols import LiveCore
from mocker_core.request import DirectRequest, HandoffId, RequestId
from tests.harness.virtual_loop import VirtualClock, run_virtual
from tests.live.fakes import FakeCore, RecordingListener, sleep_ms
from tests.property.profiles import examples

NAMES = st.sampled_from("abcd")
HANDOFFS = st.sampled_from("gh")
STEPS = st.one_of(
    st.tuples(st.just("submit"), NAMES, st.integers(1, 4)),
    st.tuples(st.just("cancel"), NAMES),
    st.tuples(st.just("cancel_soon"), NAMES),
    st.tuples(st.sampled_from(["Submit", "CancelRequest"]), NAMES),
    st.tuples(st.sampled_from(["SubmitHandoffPrefill", "ReserveDestination"]), HANDOFFS, NAMES),
    st.tuples(
        st.sampled_from(["ReleaseSource", "CancelSource", "ActivateDestination", "CancelDestination"]),
        HANDOFFS,
    ),
    st.tuples(st.just("sleep"), st.sampled_from([0.0, 1.0, 4.0, 5.0, 23.0, 400.0])),
    st.tuples(st.just("gone"), NAMES),
    st.tuples(st.just("drop_caller")),
)


class Ledger:
    """Who was accepted, and how each of them ended, as the senders and the listener saw it."""

    def __init__(self, engine: MockEngine, listener: RecordingListener) -> None:
        self.engine = engine
        self.listener = listener
        self.tasks: list[asyncio.Task[None]] = []

    def request(self, name: str, tokens: int) -> DirectRequest:
        return DirectRequest(request_id=RequestId(name), tokens=range(5), max_output_tokens=tokens)

    def step(self, kind: str, *values: Any) -> None:
        if kind == "submit":
            try:
                self.engine.submit(self.request(values[0], values[1]))
            except MockerError:
                return
        elif kind == "gone":
            self.listener.gone.add(RequestId(values[0]))
        elif kind == "drop_caller":
            if self.tasks:
                self.tasks[-1].cancel()
        elif kind == "cancel_soon":
            self.engine.cancel_soon(RequestId(values[0]))
        else:
            work = self.cancel(values[0]) if kind == "cancel" else self.command(kind, *values)
            self.tasks.append(asyncio.get_running_loop().create_task(work))

    async def cancel(self, name: str) -> None:
        await self.engine.cancel(RequestId(name))

    async def command(self, kind: str, *values: str) -> None:
        make: dict[str, Callable[..., Any]] = {
            "Submit": lambda name: Submit(self.request(name, 3)),
            "CancelRequest": lambda name: CancelRequest(RequestId(name)),
            "SubmitHandoffPrefill": lambda h, name: SubmitHandoffPrefill(HandoffId(h), self.request(name, 1)),
            "ReserveDestination": lambda h, name: ReserveDestination(HandoffId(h), self.request(name, 2)),
            "ReleaseSource": lambda h: ReleaseSource(HandoffId(h)),
            "CancelSource": lambda h: CancelSource(HandoffId(h)),
            "ActivateDestination": lambda h: ActivateDestination(HandoffId(h)),
            "CancelDestination": lambda h: CancelDestination(HandoffId(h)),
        }
        try:
            await self.engine.command(make[kind](*values))
        except MockerError:
            return


async def play(steps: list[tuple[Any, ...]], make_core: Callable[..., LiveCore], worker: WorkerType) -> None:
    args = MockEngineArgs(
        worker_type=worker,
        max_num_seqs=2,
        num_gpu_blocks=8,
        block_size=4,
        dp_size=2,
        handoff_session_timeout_ms=60.0,
        enable_kv_events=True,
    )
    log: list[tuple[Any, ...]] = []
    listener = RecordingListener(log)
    effects: list[Any] = []
    ends = EndCounter()
    cores: list[LiveCore] = []

    def factory(args: MockEngineArgs, rank: int) -> LiveCore:
        cores.append(CountingCore(make_core(args, rank), ends))
        return cores[-1]

    engine = MockEngine(args, listener, clock=VirtualClock(), core_factory=factory, effect_log=effects)
    await engine.start()
    ledger = Ledger(engine, listener)
    for kind, *values in steps:
        if kind == "sleep":
            await sleep_ms(values[0])
        else:
            ledger.step(kind, *values)
    await sleep_ms(5000)
    async with asyncio.timeout(10):
        await asyncio.gather(*ledger.tasks, return_exceptions=True)
    assert engine.dead_reason is None
    for rank, core in enumerate(cores):
        assert core.is_empty()
        assert ends.alive[rank] == set()
        assert engine.metrics(rank).active_decode_blocks == 0
        assert engine.metrics(rank).running_requests == 0
        assert engine.metrics(rank).waiting_requests == 0
        assert engine._ids.load(rank) == 0
    for name in "abcd":  # every id is free again
        engine.submit(ledger.request(name, 1))
    await engine.stop()
    told = [name for _, ids, _ in listener.dead for name in ids]
    assert sorted(told) == list("abcd")


class EndCounter:
    """Which requests are alive in each core; an end of one that isn't, or a second start, fails the test."""

    def __init__(self) -> None:
        self.alive: dict[int, set[str]] = {0: set(), 1: set()}


class CountingCore:
    """Passes every call on and counts the beginnings and ends of requests."""

    def __init__(self, core: LiveCore, ends: EndCounter) -> None:
        self._core = core
        self._alive = ends.alive[core.metrics().dp_rank]
        self._sources: dict[str, str] = {}
        self._handoffs: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)

    def receive(self, request: DirectRequest) -> None:
        assert request.request_id not in self._alive
        self._core.receive(request)
        self._alive.add(request.request_id)

    def execute_pass(self, now_ms: float) -> Any:
        result = self._core.execute_pass(now_ms)
        self._count_expired(result.lifecycle)
        for finished in result.finished:
            assert finished.request_id in self._alive
            if finished.request_id not in self._sources.values():
                self._alive.remove(finished.request_id)
        return result

    def cancel(self, request_id: RequestId, now_ms: float) -> bool:
        known = self._core.cancel(request_id, now_ms)
        assert known == (request_id in self._alive)
        self._end(request_id)
        return known

    def apply_command(self, command: Any, **how: Any) -> Any:
        effects = self._core.apply_command(command, **how)
        if isinstance(effects.result, Submitted | DestinationAccepted):
            assert command.request.request_id not in self._alive
            self._alive.add(command.request.request_id)
            if not isinstance(command, Submit):
                self._handoffs[command.handoff_id] = command.request.request_id
            if isinstance(command, SubmitHandoffPrefill):
                self._sources[command.handoff_id] = command.request.request_id
        elif isinstance(effects.result, Applied):
            if isinstance(command, CancelRequest):
                self._end(command.request_id)
            elif not isinstance(command, ActivateDestination):
                self._end(self._handoffs[command.handoff_id])
        return effects

    def advance(self, now_ms: float, **how: Any) -> Any:
        effects = self._core.advance(now_ms, **how)
        self._count_expired(effects.lifecycle)
        return effects

    def _count_expired(self, lifecycle: Iterable[SchedulerLifecycleEvent]) -> None:
        for event in lifecycle:
            if isinstance(event, SourceExpired | DestinationExpired):
                assert event.request_id in self._alive
                self._end(event.request_id)

    def _end(self, request_id: str) -> None:
        self._alive.discard(request_id)
        self._sources = {h: r for h, r in self._sources.items() if r != request_id}


@examples(60)
@given(steps=st.lists(STEPS, max_size=40), worker=st.sampled_from(WorkerType))
def test_real_core_ends_every_accepted_request_once_and_holds_nothing(
    steps: list[Any], worker: WorkerType
) -> None:
    run_virtual(play(steps, EngineCore, worker))


@examples(60)
@given(steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), max_size=30), ranks=st.integers(1, 3))
def test_plain_requests_end_once_whatever_the_times(steps: list[tuple[int, int]], ranks: int) -> None:
    """Each request is published as completed, or reported cancelled, or told to be dead, and once."""

    async def main() -> None:
        listener = RecordingListener([])
        engine = MockEngine(
            MockEngineArgs(dp_size=ranks),
            listener,
            clock=VirtualClock(),
            core_factory=lambda _, rank: FakeCore(rank, pass_ms=3.0),
        )
        await engine.start()
        cancelled: list[str] = []
        tasks = []

        async def cancel(name: str) -> None:
            if await engine.cancel(RequestId(name)) == Applied():
                cancelled.append(name)

        for number, (choice, wait_ms) in enumerate(steps):
            engine.submit(
                DirectRequest(request_id=RequestId(str(number)), tokens=(1,), max_output_tokens=choice + 1)
            )
            await sleep_ms(wait_ms / 2)
            if choice != 2:
                tasks.append(asyncio.get_running_loop().create_task(cancel(str(max(0, number - choice)))))
        await asyncio.sleep(0)
        await engine.stop()
        await asyncio.gather(*tasks)
        told = [name for _, ids, _ in listener.dead for name in ids]
        ends = Counter(told) + Counter(cancelled) + Counter(listener.ended)
        assert ends == Counter(str(number) for number in range(len(steps)))

    run_virtual(main())
