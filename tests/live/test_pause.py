"""Pausing, draining and resuming the engine, and calls on the core made by its own task."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mocker_core.commands import Applied, CancelDestination, Noop, ReserveDestination, SubmitHandoffPrefill
from mocker_core.engine_args import MockEngineArgs
from mocker_core.errors import EngineDeadError, RequestError
from mocker_core.events import BlocksCleared, BlocksStored
from mocker_core.live.engine import MockEngine
from mocker_core.live.publisher import EffectKind, PublishedEffect
from mocker_core.request import DirectRequest, HandoffId, RequestId
from tests.harness.virtual_loop import VirtualClock, run_virtual
from tests.live.fakes import Live, RecordingListener, make_request, run_live, sleep_ms

A, B = RequestId("a"), RequestId("b")
H1 = HandoffId("h1")


def soon(work: Any) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(work)


# Pause and resume


def test_paused_engine_takes_no_request_until_it_is_resumed() -> None:
    async def scenario(live: Live) -> None:
        await live.engine.pause()
        live.submit("a")
        await sleep_ms(100)
        assert live.logged("receive", "pass") == []
        live.engine.resume()
        await sleep_ms(20)

    live = run_live(scenario)
    assert live.logged("receive", "pass") == [("receive", "a"), ("pass", 100.0)]
    assert live.listener.tokens == {A: [110.0]}


def test_running_request_stands_still_during_a_pause_and_goes_on_where_it_was() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=3)
        await sleep_ms(5)
        await live.engine.pause()
        await sleep_ms(95)
        live.engine.resume()
        await sleep_ms(50)

    live = run_live(scenario)
    # The pass that was under way ended; the others began with the resumption.
    assert live.listener.tokens == {A: [10.0, 110.0, 120.0]}


def test_paused_engine_still_cancels_what_waits_outside_and_inside() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=3)
        await sleep_ms(5)
        await live.engine.pause()
        live.submit("b")
        await sleep_ms(20)
        assert await live.engine.cancel(A) == Applied()
        assert await live.engine.cancel(B) == Applied()
        assert await live.engine.cancel(B) == Noop()
        live.engine.resume()
        await sleep_ms(50)

    live = run_live(scenario)
    assert live.listener.tokens == {A: [10.0]}
    assert live.core.is_empty()


def test_paused_engine_still_serves_commands_and_deadlines() -> None:
    async def scenario(live: Live) -> None:
        await live.engine.pause()
        await live.engine.command(ReserveDestination(H1, make_request("dst")))
        live.core.deadline_ms = 30.0
        assert (await live.engine.command(CancelDestination(H1))).result == Applied()
        await sleep_ms(50)

    live = run_live(scenario, worker_type="decode")
    assert live.logged("advance") == [("advance", 30.0, True)]
    assert live.logged("pass") == []


def test_pause_ends_the_waiting_for_progress_as_well() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a")
        await sleep_ms(5)
        await live.engine.pause()
        live.core.blocked = False
        live.submit("b")
        await sleep_ms(20)
        assert live.core.passes == 1
        live.engine.resume()
        await sleep_ms(30)

    live = run_live(scenario, core={"blocked": True})
    assert set(live.listener.tokens) == {A, B}


def test_pausing_twice_and_resuming_twice_does_no_harm() -> None:
    async def scenario(live: Live) -> None:
        await live.engine.pause()
        await live.engine.pause()
        live.submit("a")
        live.engine.resume()
        live.engine.resume()
        await sleep_ms(20)

    assert run_live(scenario).listener.tokens == {A: [10.0]}


# Drain


def test_drain_lets_received_requests_end_and_holds_back_new_ones() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=3)
        await sleep_ms(5)
        draining = soon(live.engine.pause(drain=True))
        await sleep_ms(5)
        live.submit("b")
        await draining
        assert live.engine.now_ms() == 30.0
        await sleep_ms(100)
        live.engine.resume()
        await sleep_ms(20)

    live = run_live(scenario)
    assert live.listener.tokens == {A: [10.0, 20.0, 30.0], B: [140.0]}


def test_drain_of_an_idle_engine_ends_at_once_for_all_ranks() -> None:
    async def scenario(live: Live) -> None:
        await sleep_ms(5)
        await live.engine.pause(drain=True)
        assert live.engine.now_ms() == 5.0
        live.submit("a", dp_rank=1)
        await sleep_ms(50)
        assert live.listener.tokens == {}

    run_live(scenario, dp_size=2)


def test_resume_ends_a_drain_that_is_not_done() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=5)
        await sleep_ms(5)
        draining = soon(live.engine.pause(drain=True))
        await sleep_ms(10)
        live.engine.resume()
        await draining
        assert live.engine.now_ms() == 15.0
        live.submit("b")
        await sleep_ms(50)

    live = run_live(scenario)
    assert live.listener.tokens[B] == [30.0]
    assert len(live.listener.tokens[A]) == 5


def test_stop_ends_whoever_waits_for_a_drain() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=5)
        await sleep_ms(5)
        draining = soon(live.engine.pause(drain=True))
        await sleep_ms(1)
        await live.engine.stop()
        with pytest.raises(EngineDeadError):
            await draining

    run_live(scenario)


def test_stop_of_a_paused_engine_tells_every_request() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=5)
        await sleep_ms(5)
        await live.engine.pause()
        live.submit("b")
        await sleep_ms(20)

    live = run_live(scenario)
    assert [ids for _, ids, _ in live.listener.dead] == [[A, B]]


# Calls on the core


def test_call_runs_on_the_core_with_the_engine_s_time_and_returns_its_value() -> None:
    async def scenario(live: Live) -> None:
        await sleep_ms(7)
        core, now_ms = await live.engine.call_core(1, lambda core, now_ms: (core, now_ms))
        assert core is live.cores[1]
        assert now_ms == 7.0

    run_live(scenario, dp_size=2)


def test_kv_events_of_a_call_go_out_before_its_reply_when_no_pass_is_under_way() -> None:
    heard: list[object] = []

    async def scenario(live: Live) -> None:
        await live.engine.call_core(0, lambda core, _: live.core._kv_events.append(live.core.kv_event()))
        heard.extend(live.logged("on_kv_events", "on_metrics"))

    run_live(scenario)
    assert heard == [("on_kv_events", [1]), ("on_metrics",)]


def test_call_in_mid_pass_is_answered_at_once_and_its_kv_events_wait_for_the_boundary() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=2)
        await sleep_ms(4)
        before = len(live.log)
        await live.engine.call_core(0, lambda core, _: live.core._kv_events.append(live.core.kv_event()))
        assert live.engine.now_ms() == 4.0
        assert [entry for entry in live.log[before:] if entry[0] != "flush"] == []
        await sleep_ms(7)
        after = [entry[0] for entry in live.log[before:] if entry[0] != "flush"]
        assert after[:4] == ["on_fpm", "on_outputs", "on_kv_events", "on_metrics"]

    run_live(scenario)


def test_error_of_a_call_goes_to_its_caller_and_the_loop_goes_on() -> None:
    def refuse(core: object, now_ms: float) -> None:
        raise RequestError("no.")

    async def scenario(live: Live) -> None:
        with pytest.raises(RequestError):
            await live.engine.call_core(0, refuse)
        live.submit("a")
        await sleep_ms(2)
        with pytest.raises(RequestError):
            await live.engine.call_core(0, refuse)
        await sleep_ms(20)

    assert run_live(scenario).listener.tokens == {A: [10.0]}


def test_call_on_a_stopped_engine_or_a_missing_rank_is_refused() -> None:
    async def scenario(live: Live) -> None:
        with pytest.raises(RequestError, match="dp_rank is 1"):
            await live.engine.call_core(1, lambda core, _: None)
        await live.engine.stop()
        with pytest.raises(EngineDeadError):
            await live.engine.call_core(0, lambda core, _: None)

    run_live(scenario)


def test_call_that_the_end_overtakes_has_an_answer() -> None:
    async def scenario(live: Live) -> None:
        call = soon(live.engine.call_core(0, lambda core, _: None))
        await asyncio.sleep(0)
        await live.engine.stop()
        with pytest.raises(EngineDeadError):
            await call

    run_live(scenario)


def test_cancel_all_ends_every_request_wherever_it_is() -> None:
    async def scenario(live: Live) -> None:
        await live.engine.command(SubmitHandoffPrefill(H1, make_request("source")))
        await sleep_ms(15)
        live.submit("a", tokens=5, dp_rank=1)
        await sleep_ms(2)
        live.submit("b", tokens=5, dp_rank=1)
        await live.engine.cancel_all()
        assert all(core.is_empty() and not core.sources for core in live.cores)
        await sleep_ms(30)

    live = run_live(scenario, worker_type="prefill", dp_size=2)
    assert A not in live.listener.tokens
    assert B not in live.listener.tokens


# With the real core


def run_real(scenario: Any, **args: Any) -> list[PublishedEffect]:
    async def main() -> list[PublishedEffect]:
        effects: list[PublishedEffect] = []
        values = {"num_gpu_blocks": 16, "block_size": 4, "enable_kv_events": True, **args}
        clock = VirtualClock()
        listener = RecordingListener([], clock.now_ms)
        engine = MockEngine(MockEngineArgs(**values), listener, clock=clock, effect_log=effects)
        await engine.start()
        try:
            await scenario(engine, listener)
        finally:
            await engine.stop()
        return effects

    return run_virtual(main())


def prompt(name: str, output: int) -> DirectRequest:
    return DirectRequest(request_id=RequestId(name), tokens=tuple(range(9)), max_output_tokens=output)


def test_reset_during_a_request_is_refused_and_after_its_preemption_it_clears_and_recomputes() -> None:
    async def scenario(engine: MockEngine, listener: RecordingListener) -> None:
        engine.submit(prompt("a", 6))
        while len(listener.tokens.get(A, [])) < 3:
            await sleep_ms(1)
        assert not await engine.call_core(0, lambda core, now_ms: core.reset_prefix_cache(now_ms))

        def preempt_and_reset(core: Any, now_ms: float) -> tuple[int, bool]:
            return core.preempt_all(now_ms), core.reset_prefix_cache(now_ms)

        assert await engine.call_core(0, preempt_and_reset) == (1, True)
        while A not in listener.ended:
            await sleep_ms(1)

    effects = run_real(scenario)
    details: list[tuple[EffectKind, Any]] = [(effect.kind, effect.detail) for effect in effects]
    assert sum(len(detail) for kind, detail in details if kind is EffectKind.OUTPUTS) == 6
    events = [event for kind, detail in details if kind is EffectKind.KV_EVENTS for event in detail]
    cleared = next(place for place, event in enumerate(events) if isinstance(event, BlocksCleared))
    stored_again = [event for event in events[cleared:] if isinstance(event, BlocksStored)]
    assert stored_again[0].parent is None
    ids = [event.event_id for event in events]
    assert ids == list(range(len(ids)))
