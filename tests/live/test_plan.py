"""Pass times: anchored, never early, caught up with in slices, re-anchored when hopelessly behind."""

from __future__ import annotations

import asyncio

import pytest

from mocker_core.commands import CancelRequest
from mocker_core.live.plan import PassPlan
from mocker_core.request import RequestId
from tests.harness.virtual_loop import spend_ms
from tests.live.fakes import Live, run_live, sleep_ms


def test_late_wake_ups_do_not_add_up() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=50)
        for step in range(50):
            # Another task holds the event loop over every boundary, for 3 ms.
            await sleep_ms(step * 10 + 9 - live.engine.now_ms())
            spend_ms(3)
        await sleep_ms(20)
        assert live.engine.rank_stats(0).max_lateness_ms == pytest.approx(2.0)

    live = run_live(scenario)
    assert live.listener.tokens["a"] == [10.0 * n for n in range(1, 51)]
    lateness = [
        at - plan
        for at, plan in zip(
            live.listener.published_ms[RequestId("a")], live.listener.tokens[RequestId("a")], strict=True
        )
    ]
    assert all(0.0 <= late <= 2.0 + 1e-9 for late in lateness)


def test_clock_is_read_again_after_an_idle_wait() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=1)
        await sleep_ms(37)
        live.submit("b", tokens=1)
        await sleep_ms(20)

    live = run_live(scenario)
    assert [now_ms for _, now_ms in live.logged("pass")] == [0.0, pytest.approx(37.0)]


def test_request_received_before_the_planned_end_joins_there_although_the_loop_is_late() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=1)
        await sleep_ms(9)
        live.submit("b", tokens=1)
        spend_ms(4)  # the loop gets its turn at 13 ms
        await sleep_ms(20)

    assert run_live(scenario).listener.tokens == {"a": [10.0], "b": [20.0]}


def test_request_received_after_the_planned_end_waits_for_the_next_pass_although_the_loop_is_late() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=3)
        await sleep_ms(9)
        spend_ms(2)
        live.submit(
            "b", tokens=1
        )  # at 11 ms; the pass from 10 ms on starts later in real time, and without it
        await sleep_ms(40)

    assert run_live(scenario).listener.tokens == {"a": [10.0, 20.0, 30.0], "b": [30.0]}


def test_command_received_after_the_planned_end_waits_for_the_next_boundary_although_the_loop_is_late() -> (
    None
):
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=3)
        await sleep_ms(9)
        waiting = live.send(CancelRequest(RequestId("a")))
        spend_ms(2)
        await waiting  # sent at 11 ms
        assert live.engine.now_ms() == 20.0

    live = run_live(scenario, worker_type="prefill")
    assert live.logged("command") == [("command", "CancelRequest", True, 20.0)]
    assert live.listener.tokens == {"a": [10.0, 20.0]}


def test_wake_just_before_the_planned_end_publishes_nothing_yet() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=2)
        live.submit("b", tokens=2)
        await sleep_ms(9.999)
        await live.engine.cancel(RequestId("b"))
        await asyncio.sleep(0)
        assert live.listener.tokens == {}
        await sleep_ms(20)

    assert run_live(scenario).listener.published_ms["a"] == [10.0, 20.0]


def test_engine_time_told_during_a_late_pass_does_not_go_past_its_end() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=2)
        await sleep_ms(9)
        live.engine.cancel_soon(RequestId("a"))
        spend_ms(4)
        await sleep_ms(5)

    assert run_live(scenario).logged("cancel") == [("cancel", "a", 10.0)]


def test_loop_that_is_behind_runs_passes_without_waiting_until_it_caught_up() -> None:
    async def scenario(live: Live) -> None:
        live.core.work_ms = 0.1
        live.submit("a", tokens=20)
        await sleep_ms(5)
        spend_ms(80)
        await sleep_ms(0.001)
        live.log.append(("turn",))
        assert len(live.listener.tokens["a"]) == 8
        await sleep_ms(200)
        stats = live.engine.rank_stats(0)
        assert stats.late_passes == 7  # the first of the eight had waited
        assert stats.re_anchors == 0

    live = run_live(scenario)
    behind = live.log[: live.log.index(("turn",))]
    kinds = [entry[0] for entry in behind if entry[0] in ("on_outputs", "flush")]
    assert kinds == ["flush", *["on_outputs"] * 8, "flush"]  # the wait of the first pass; caught up
    assert live.listener.tokens["a"] == [10.0 * n for n in range(1, 21)]


def test_loop_that_is_behind_flushes_and_yields_after_each_slice() -> None:
    async def scenario(live: Live) -> None:
        live.core.pass_ms = 1.0
        live.core.work_ms = 0.5
        live.submit("a", tokens=60)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        spend_ms(50)
        turns = 0
        while live.engine.now_ms() < 70:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= 9

    live = run_live(scenario, slice_ms=2.0)
    longest = run = 0
    for entry in live.logged("on_outputs", "flush"):
        run = 0 if entry[0] == "flush" else run + 1
        longest = max(longest, run)
    assert longest == 4  # 2 ms of passes that cost 0.5 ms


def test_cancellation_after_a_slice_still_comes_before_that_pass_s_outputs() -> None:
    async def scenario(live: Live) -> None:
        live.core.pass_ms = 1.0
        live.core.work_ms = 3.0
        live.submit("a", tokens=100)
        live.submit("b", tokens=100)
        await sleep_ms(0.5)
        for _ in range(10):
            await asyncio.sleep(0)
        seen = len(live.listener.tokens["a"])
        await live.engine.cancel(RequestId("a"))
        await asyncio.sleep(0)
        assert len(live.listener.tokens["a"]) == seen

    run_live(scenario)


def test_loop_too_far_behind_re_anchors_to_the_clock_and_counts_it() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=3)
        await sleep_ms(5)
        spend_ms(500)
        await sleep_ms(100)
        assert live.engine.rank_stats(0).re_anchors == 1

    live = run_live(scenario, max_catch_up_ms=100.0)
    first, second, third = live.listener.tokens["a"]
    assert first == 10.0
    assert second == pytest.approx(515.0)
    assert third == pytest.approx(525.0)


def test_saturated_loop_lets_a_new_request_in_without_waiting_for_the_catch_up_limit() -> None:
    async def scenario(live: Live) -> None:
        live.core.pass_ms = 0.01
        live.core.work_ms = 0.5  # passes cost fifty times what they model
        live.submit("a", tokens=10_000)
        await sleep_ms(50)
        sent_ms = live.engine.now_ms()
        live.submit("b", tokens=1)
        for _ in range(4):
            await asyncio.sleep(0)
        assert live.listener.ended == {"b": 1}
        assert live.engine.now_ms() - sent_ms < 10.0  # not max_catch_up_ms
        stats = live.engine.rank_stats(0)
        assert stats.saturated
        assert stats.saturated_joins == 1
        assert stats.re_anchors == 0
        await live.engine.cancel(RequestId("a"))

    live = run_live(scenario)
    # Late, never early: no token's planned time is before its request was received.
    assert all(at >= plan for name in ("a", "b") for at, plan in _published(live, name))


def test_loop_that_can_catch_up_is_not_saturated_and_keeps_its_plan() -> None:
    async def scenario(live: Live) -> None:
        live.core.work_ms = 3.0
        live.submit("a", tokens=20)
        await sleep_ms(5)
        spend_ms(60)
        live.submit("b", tokens=1)
        await sleep_ms(300)
        assert live.engine.rank_stats(0).saturated_joins == 0

    live = run_live(scenario)
    assert live.listener.tokens["a"] == [10.0 * n for n in range(1, 21)]
    assert live.listener.tokens["b"] == [80.0]


def _published(live: Live, name: str) -> list[tuple[float, float]]:
    request_id = RequestId(name)
    return list(zip(live.listener.published_ms[request_id], live.listener.tokens[request_id], strict=True))


def test_plan_takes_the_clock_only_while_it_is_released() -> None:
    plan = PassPlan(max_catch_up_ms=1000.0, slice_ms=2.0)
    assert plan.start_ms(5.0, arrived_later=False) == 5.0
    plan.pass_ended(17.0, 15.0, waited=True)
    assert plan.start_ms(17.1, arrived_later=True) == 15.0
    plan.release()
    assert plan.start_ms(20.0, arrived_later=False) == 20.0


def test_plan_is_kept_at_exactly_the_catch_up_limit() -> None:
    plan = PassPlan(max_catch_up_ms=10.0, slice_ms=2.0)
    plan.anchor(100.0)
    assert plan.start_ms(110.0, arrived_later=False) == 100.0
    assert plan.start_ms(110.1, arrived_later=False) == 110.1
    assert plan.stats().re_anchors == 1


def test_moving_the_plan_to_the_clock_is_no_progress_of_the_plan() -> None:
    plan = PassPlan(max_catch_up_ms=10.0, slice_ms=2.0)
    plan.anchor(0.0)
    plan.start_ms(50.0, arrived_later=False)
    plan.pass_ended(51.0, 50.5, waited=False)
    plan.slice_ended(51.0, 50.5)
    assert plan.saturated  # 0.5 ms were modelled in 51 ms
