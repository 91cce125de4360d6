"""The driver between two real engines in virtual time, and between ends that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from mocker_core.commands import ReserveDestination
from mocker_core.engine_args import MockEngineArgs
from mocker_core.events import (
    DestinationReserved,
    OutputSignal,
    PlainToken,
    SchedulerLifecycleEvent,
    SourceHeld,
)
from mocker_core.handoff.coordinator import (
    AckOutcome,
    Failed,
    HandoffAction,
    HandoffCoordinator,
    HandoffOutcome,
    HandoffSide,
)
from mocker_core.handoff.coordinator_table import HandoffOrder
from mocker_core.live.engine import MockEngine
from mocker_core.live.handoff_driver import Ack, HandoffDriver, LocalDestination, LocalSource
from mocker_core.request import DirectRequest, HandoffId, RequestId
from mocker_core.sched.output import EnginePassResult
from tests.harness.virtual_loop import VirtualClock, run_virtual

H = HandoffId("h")
APPLIED, NOOP, REFUSED, LOST = AckOutcome


class Listener:
    """Keeps outputs; gives lifecycle events to the driver."""

    def __init__(self) -> None:
        self.outputs: list[tuple[float, OutputSignal]] = []
        self.tell: Callable[[SchedulerLifecycleEvent], None] = lambda _: None

    def on_outputs(
        self,
        dp_rank: int,
        result: EnginePassResult,
        tokens: Sequence[PlainToken],
        ends: Sequence[OutputSignal],
    ) -> tuple[()]:
        signals = [*(OutputSignal(*token, completed=False) for token in tokens), *ends]
        self.outputs += [(result.end_ms, signal) for signal in signals]
        return ()

    def on_lifecycle(self, dp_rank: int, event: SchedulerLifecycleEvent) -> None:
        if event.handoff_id == H:
            self.tell(event)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class Pair:
    """A prefill and a decode engine on one clock, and a driver between them."""

    def __init__(self, order: HandoffOrder = HandoffOrder.SOURCE_FIRST, **args: object) -> None:
        clock = VirtualClock()
        common = {
            "block_size": 4,
            "num_gpu_blocks": 16,
            "kv_bytes_per_token": 1_000_000,
            "kv_transfer_bandwidth": 1.0,
            "timing_model": {"type": "fixed", "prefill_ms": 10, "decode_ms": 5},
        }
        self.listeners = Listener(), Listener()
        self.prefill, self.decode = (
            MockEngine(
                MockEngineArgs.from_mapping({**common, "worker_type": role, **args}), listener, clock=clock
            )
            for role, listener in zip(("prefill", "decode"), self.listeners, strict=True)
        )
        self.notes: list[tuple[float, str]] = []
        request = DirectRequest(request_id=RequestId("r"), tokens=range(10), max_output_tokens=3)
        self.driver = HandoffDriver(
            HandoffCoordinator(H, order),
            LocalSource(self.prefill, H, request),
            LocalDestination(self.decode, H, request),
            session_timeout_ms=1000.0,
            note=lambda text: self.notes.append((clock.now_ms(), text)),
        )
        for listener in self.listeners:
            listener.tell = self.driver.observe_lifecycle

    async def run(
        self, meanwhile: Callable[[Pair], Coroutine[Any, Any, None]] | None = None
    ) -> HandoffAction:
        await self.prefill.start()
        await self.decode.start()
        async with asyncio.TaskGroup() as group:
            if meanwhile is not None:
                group.create_task(meanwhile(self))
            end = await self.driver.run()
        await asyncio.sleep(1)
        self.blocks = [engine.metrics(0).active_decode_blocks for engine in (self.prefill, self.decode)]
        await self.prefill.stop()
        await self.decode.stop()
        return end

    def at(self, text: str) -> float:
        return next(at_ms for at_ms, note in self.notes if note == text)

    @property
    def decoded(self) -> list[float]:
        return [at_ms for at_ms, _ in self.listeners[1].outputs]


def test_source_first_decodes_after_prefill_and_transfer() -> None:
    pair = Pair()
    end = run_virtual(pair.run())
    assert end.outcome is HandoffOutcome.COMPLETED
    assert pair.at("source held") == 10.0
    assert pair.at("transfer completed") == 20.0  # 10 tokens of 1 MB at 1 GB/s
    assert pair.decoded == [25.0, 30.0, 35.0]
    assert pair.blocks == [0, 0]


def test_destination_first_reserves_before_the_prefill() -> None:
    pair = Pair(HandoffOrder.DESTINATION_FIRST)
    assert run_virtual(pair.run()).outcome is HandoffOutcome.COMPLETED
    assert pair.at("destination reserved") == 0.0 < pair.at("source held")
    assert pair.decoded == [25.0, 30.0, 35.0]
    assert pair.blocks == [0, 0]


@pytest.mark.parametrize("order", HandoffOrder)
@pytest.mark.parametrize("at_ms", [0, 1, 9, 10, 11, 19])
def test_cancel_at_any_time_before_activation_leaves_no_block(order: HandoffOrder, at_ms: float) -> None:
    async def cancel(pair: Pair) -> None:
        await asyncio.sleep(at_ms / 1000)
        pair.driver.cancel()

    pair = Pair(order)
    assert run_virtual(pair.run(cancel)).outcome is HandoffOutcome.CANCELLED
    assert pair.decoded == []
    assert pair.blocks == [0, 0]


@pytest.mark.parametrize("order", HandoffOrder)
@pytest.mark.parametrize("side", HandoffSide)
def test_failure_in_mid_transfer_leaves_no_block(order: HandoffOrder, side: HandoffSide) -> None:
    async def fail(pair: Pair) -> None:
        await asyncio.sleep(0.015)
        pair.driver.observe(Failed(side, "The peer is gone."))

    pair = Pair(order)
    end = run_virtual(pair.run(fail))
    assert (end.outcome, end.reason) == (HandoffOutcome.FAILED, "The peer is gone.")
    assert pair.blocks == [0, 0]


def test_prompt_that_the_destination_refuses_frees_the_source() -> None:
    pair = Pair()

    async def block(pair: Pair) -> None:
        # The same request id is alive on the decode side already.
        other = DirectRequest(request_id=RequestId("r"), tokens=range(4), max_output_tokens=1)
        await pair.decode.command(ReserveDestination(HandoffId("other"), other))

    end = run_virtual(pair.run(block))
    assert end.outcome is HandoffOutcome.FAILED
    assert "request id r is in use" in end.reason
    assert pair.blocks[0] == 0


class Scripted:
    """Both ends at once: answers as told, notes every call, reports its facts like an engine would."""

    def __init__(self, **answers: Ack | float) -> None:
        self.answers = answers
        self.calls: list[str] = []
        self.driver: HandoffDriver | None = None

    async def _answer(self, name: str, fact: SchedulerLifecycleEvent | None = None) -> Ack:
        self.calls.append(name)
        answer = self.answers.get(name, Ack(APPLIED))
        if not isinstance(answer, Ack):
            await asyncio.sleep(answer / 1000)
            answer = Ack(APPLIED)
        if fact is not None and answer.outcome is APPLIED:
            assert self.driver is not None
            self.driver.observe(fact)
        return answer

    async def submit_prefill(self) -> Ack:
        return await self._answer("submit_prefill", SourceHeld(H, RequestId("r"), 5.0, 8))

    async def reserve(self) -> Ack:
        return await self._answer("reserve", DestinationReserved(H, RequestId("r"), 8))

    async def activate(self) -> Ack:
        return await self._answer("activate")

    async def release(self) -> Ack:
        return await self._answer("release")

    async def cancel(self) -> Ack:
        return await self._answer("cancel")


def drive(timeout_ms: float = 1000.0, **answers: Ack | float) -> tuple[HandoffAction, Scripted, float]:
    async def run() -> tuple[HandoffAction, Scripted, float]:
        ends = Scripted(**answers)
        driver = HandoffDriver(HandoffCoordinator(H), ends, ends, session_timeout_ms=timeout_ms)
        ends.driver = driver
        end = await driver.run()
        return end, ends, asyncio.get_running_loop().time() * 1000

    return run_virtual(run())


@pytest.mark.parametrize("step", ["submit_prefill", "reserve", "activate"])
def test_lost_acknowledgement_is_followed_by_cancels(step: str) -> None:
    answers: dict[str, Any] = {step: Ack(LOST, "Nobody answered.")}
    end, ends, _ = drive(**answers)
    assert (end.outcome, end.reason) == (HandoffOutcome.FAILED, "Nobody answered.")
    assert ends.calls[-1] == "cancel"


def test_lost_release_is_followed_by_a_cancel_and_completes() -> None:
    end, ends, _ = drive(release=Ack(LOST))
    assert end.outcome is HandoffOutcome.COMPLETED
    assert ends.calls[-2:] == ["release", "cancel"]


def test_session_times_out_while_a_side_is_silent_and_its_cancel_waits_its_turn() -> None:
    end, ends, ended_at_ms = drive(100.0, reserve=150.0)
    assert end.outcome is HandoffOutcome.TIMED_OUT
    assert ends.calls == ["submit_prefill", "reserve", "cancel", "cancel"]
    assert ended_at_ms == pytest.approx(150.0)


def test_transfer_does_not_count_for_the_session_timeout() -> None:
    end, _, ended_at_ms = drive(3.0, activate=1.0)
    assert end.outcome is HandoffOutcome.COMPLETED
    assert ended_at_ms == pytest.approx(6.0)


def test_cancels_that_nobody_confirms_end_with_a_second_timeout_but_are_carried_out() -> None:
    end, ends, ended_at_ms = drive(100.0, reserve=Ack(LOST), cancel=500.0)
    assert end.outcome is HandoffOutcome.FAILED
    assert ends.calls.count("cancel") == 2
    assert ended_at_ms == pytest.approx(500.0)


def test_side_that_contradicts_itself_ends_the_handoff() -> None:
    async def run() -> HandoffAction:
        ends = Scripted(reserve=50.0)
        driver = HandoffDriver(HandoffCoordinator(H), ends, ends, session_timeout_ms=1000.0)
        ends.driver = driver
        asyncio.get_running_loop().call_later(0.01, driver.observe, SourceHeld(H, RequestId("r"), 9.0, 8))
        return await driver.run()

    end = run_virtual(run())
    assert end.outcome is HandoffOutcome.FAILED
    assert "contradicts itself" in end.reason
