from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from app.dispatch import Dispatcher, EngineObserver
from app.stream_response import HotResponse
from mocker_core.events import AdmissionEvent, OutputSignal
from mocker_core.metrics import MockerMetrics
from mocker_core.request import RequestId
from mocker_core.sched.output import EnginePassResult
from tests.harness.scripted_engine import add_outputs

METRICS = MockerMetrics(0, 0, 1, 0.0, 0, 0, 0)


class SinkLog:
    def __init__(self, *, broken: bool = False) -> None:
        self.calls: list[Any] = []
        self.broken = broken

    def admitted(self, reused_input_tokens: int, readmission: bool, dp_rank: int, now_ms: float) -> None:
        self.calls.append(("admitted", reused_input_tokens, readmission, dp_rank, now_ms))

    def preempted(self) -> None:
        self.calls.append("preempted")

    def token(self, token_id: int | None, end_ms: float) -> None:
        if self.broken:
            raise ValueError("broken sink")
        self.calls.append((token_id, end_ms))

    def end(self, signal: OutputSignal, end_ms: float) -> None:
        self.calls.append(("end", signal.token_id, signal.rejected, end_ms))

    def fail(self, error: Exception) -> None:
        self.calls.append(("fail", str(error)))


def one_pass(*outputs: OutputSignal, admissions: tuple[AdmissionEvent, ...] = ()) -> EnginePassResult:
    result = EnginePassResult(1.0, 3.0, list(admissions), METRICS, True)
    add_outputs(result, outputs)
    return result


def token(
    name: str, token_id: int | None = 7, *, completed: bool = False, rejected: bool = False
) -> OutputSignal:
    return OutputSignal(RequestId(name), token_id, completed, rejected)


def deliver(dispatcher: Dispatcher, *outputs: OutputSignal) -> list[str]:
    result = one_pass(*outputs)
    return list(dispatcher.on_outputs(0, result, result.tokens, result.ends))


def test_each_signal_reaches_its_own_sink_in_order() -> None:
    dispatcher, a, b = Dispatcher(), SinkLog(), SinkLog()
    dispatcher.register(RequestId("a"), a)
    dispatcher.register(RequestId("b"), b)
    assert deliver(dispatcher, token("a", 1), token("b", 2), token("a", 3, completed=True)) == []
    assert a.calls == [(1, 3.0), ("end", 3, False, 3.0)]
    assert b.calls == [(2, 3.0)]
    assert dispatcher.live_ids() == ["b"]


def test_a_signal_without_a_sink_is_reported_as_gone() -> None:
    dispatcher, a = Dispatcher(), SinkLog()
    dispatcher.register(RequestId("a"), a)
    dispatcher.forget(RequestId("a"))
    assert deliver(dispatcher, token("a"), token("x")) == ["a", "x"]
    assert a.calls == []


def test_a_sink_that_raises_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    dispatcher, bad, good = Dispatcher(), SinkLog(broken=True), SinkLog()
    dispatcher.register(RequestId("bad"), bad)
    dispatcher.register(RequestId("good"), good)
    with caplog.at_level(logging.CRITICAL):
        assert deliver(dispatcher, token("bad"), token("good")) == ["bad"]
    assert bad.calls == [("fail", "broken sink")]
    assert good.calls == [(7, 3.0)]


def test_admissions_and_preemptions_reach_the_sink() -> None:
    dispatcher, a = Dispatcher(), SinkLog()
    dispatcher.register(RequestId("a"), a)
    assert dispatcher.waiting_for_admission == 1
    result = one_pass(admissions=(AdmissionEvent(RequestId("a"), 16),))
    result.preempted.append(RequestId("a"))
    dispatcher.on_pass_start(1, result)
    assert a.calls == [("admitted", 16, False, 1, 1.0), "preempted"]
    assert dispatcher.waiting_for_admission == 0


def test_a_dead_rank_fails_its_requests_only() -> None:
    dispatcher, a, b = Dispatcher(), SinkLog(), SinkLog()
    dispatcher.register(RequestId("a"), a)
    dispatcher.register(RequestId("b"), b)
    dispatcher.on_dead(1, [RequestId("a"), RequestId("unknown")], "it broke.")
    assert a.calls == [("fail", "The engine of rank 1 ended: it broke.")]
    assert b.calls == []
    assert dispatcher.live_ids() == ["b"]


def test_observers_hear_after_the_sinks_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    order: list[str] = []

    class Broken(EngineObserver):
        def on_pass_end(self, dp_rank: int, result: EnginePassResult) -> None:
            raise ValueError

    class Watching(EngineObserver):
        def on_pass_end(self, dp_rank: int, result: EnginePassResult) -> None:
            order.append(f"observer after {len(sink.calls)}")

    dispatcher, sink = Dispatcher(), SinkLog()
    dispatcher.register(RequestId("a"), sink)
    dispatcher.add_observer(Broken())
    watching = Watching()
    dispatcher.add_observer(watching)
    with caplog.at_level(logging.CRITICAL):
        deliver(dispatcher, token("a"))
    dispatcher.remove_observer(watching)
    deliver(dispatcher, token("a"))
    assert order == ["observer after 1"]


def test_a_flush_writes_each_dirty_stream_once_and_measures_lateness() -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    async def main() -> None:
        dispatcher = Dispatcher()
        dispatcher.now_ms = lambda: 10.5
        streams = [HotResponse({}, send, dispatcher.writes) for _ in range(3)]
        for stream in streams:
            stream.plan_ms = 10.0
            stream.push(b"a")
            stream.push(b"b")
        dispatcher.flush()
        dispatcher.flush()
        assert [message["body"] for message in sent if "body" in message] == [b"ab"] * 3
        assert dispatcher.lateness.total == 6
        assert dispatcher.lateness.max_ms == 0.5
        assert dispatcher.lateness.sum_ms == 3.0

    asyncio.run(main())


def test_waiting_for_the_last_request_ends_with_it() -> None:
    async def main() -> None:
        dispatcher = Dispatcher()
        assert await dispatcher.wait_drained(0.0)
        dispatcher.register(RequestId("a"), SinkLog())
        assert not await dispatcher.wait_drained(0.0)
        waiting = asyncio.ensure_future(dispatcher.wait_drained(20.0))
        await asyncio.sleep(0)
        dispatcher.forget(RequestId("a"))
        assert await waiting

    asyncio.run(main())
