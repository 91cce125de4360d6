"""Timers never fire early, re-arm when the event loop wakes them early, and never spin."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from mocker_core.live import precise_wait
from mocker_core.live.clock import ManualClock, WallClock
from mocker_core.live.precise_wait import LoopTimer, Sleeper, TimerfdTimer, precise_timer
from tests.harness.virtual_loop import VirtualClock, run_virtual

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="timerfd is Linux's")


def test_loop_timer_that_is_woken_early_waits_on_and_does_not_spin() -> None:
    async def main() -> list[float]:
        fired: list[float] = []
        loop = asyncio.get_running_loop()
        calls = 0

        def slow_clock() -> float:
            # The event loop's time runs 3 % ahead of the engine's clock.
            nonlocal calls
            calls += 1
            return loop.time() * 1000.0 * 0.97

        timer = LoopTimer(slow_clock, lambda: fired.append(slow_clock()))
        timer.arm(100.0)
        await asyncio.sleep(1.0)
        assert calls < 12
        return fired

    (at_ms,) = run_virtual(main())
    assert 100.0 <= at_ms < 102.0


def test_loop_timer_keeps_only_its_latest_deadline() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        fired: list[float] = []
        timer = LoopTimer(lambda: loop.time() * 1000.0, lambda: fired.append(round(loop.time() * 1000.0)))
        timer.arm(10.0)
        timer.arm(30.0)
        await asyncio.sleep(0.05)
        timer.arm(60.0)
        timer.disarm()
        timer.arm(70.0)
        timer.close()
        await asyncio.sleep(0.05)
        assert fired == [30]

    run_virtual(main())


def _wait_on_the_wall(make: Callable[..., Any], delays_ms: list[float]) -> list[float]:
    async def main() -> list[float]:
        clock = WallClock()
        sleeper = Sleeper(lambda on_due: make(clock.now_ms, on_due))
        lateness = []
        for delay_ms in delays_ms:
            deadline_ms = clock.now_ms() + delay_ms
            await sleeper.wait(0, deadline_ms)
            lateness.append(clock.now_ms() - deadline_ms)
        sleeper.close()
        return lateness

    return asyncio.run(main())


DELAYS_MS = [0.05, 1.3, 0.4, 2.0, 0.0, -5.0, 0.9]


def test_loop_timer_on_the_wall_is_never_early() -> None:
    assert all(late >= 0 for late in _wait_on_the_wall(LoopTimer, DELAYS_MS))


@linux_only
def test_timerfd_on_the_wall_is_never_early() -> None:
    assert all(late >= 0 for late in _wait_on_the_wall(TimerfdTimer, DELAYS_MS))


@linux_only
@pytest.mark.parametrize("make", [LoopTimer, TimerfdTimer])
def test_timers_on_uvloop_are_never_early(make: Callable[..., Any]) -> None:
    uvloop = pytest.importorskip("uvloop", reason="uvloop is not installed")

    async def main() -> list[float]:
        clock = WallClock()
        sleeper = Sleeper(lambda on_due: make(clock.now_ms, on_due))
        lateness = []
        for delay_ms in DELAYS_MS:
            deadline_ms = clock.now_ms() + delay_ms
            await sleeper.wait(0, deadline_ms)
            lateness.append(clock.now_ms() - deadline_ms)
        sleeper.close()
        return lateness

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert all(late >= 0 for late in runner.run(main()))


@linux_only
def test_timerfd_gives_its_descriptor_back_and_ignores_a_stale_expiry() -> None:
    async def main() -> None:
        clock = WallClock()
        before = len(os.listdir("/proc/self/fd"))
        fired: list[float] = []
        timer = TimerfdTimer(clock.now_ms, lambda: fired.append(1.0))
        timer.arm(clock.now_ms() + 0.1)
        timer.disarm()
        other = Sleeper(clock.new_timer)
        await other.wait(0, clock.now_ms() + 2.0)
        assert fired == []
        other.close()
        timer.close()
        timer.close()
        assert len(os.listdir("/proc/self/fd")) == before

    asyncio.run(main())


@linux_only
def test_timerfd_woken_before_its_deadline_arms_again() -> None:
    async def main() -> None:
        clock = WallClock()
        skew = 5.0
        fired: list[float] = []
        timer = TimerfdTimer(lambda: clock.now_ms() - skew, lambda: fired.append(clock.now_ms()))
        deadline_ms = clock.now_ms() + 1.0
        timer.arm(deadline_ms - skew)
        skew = 6.0  # the clock was set back: the kernel's expiry is 1 ms early now
        other = Sleeper(clock.new_timer)
        await other.wait(0, deadline_ms + 20.0)
        other.close()
        timer.close()
        (at_ms,) = fired
        assert at_ms >= deadline_ms + 1.0

    asyncio.run(main())


def test_platform_without_timerfd_falls_back_to_the_loop_s_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_timerfd(*_: object) -> None:
        raise OSError("not here")

    async def main() -> None:
        timer = precise_timer(lambda: 0.0, lambda: None)
        assert isinstance(timer, LoopTimer)
        timer.close()

    monkeypatch.setattr(precise_wait, "TimerfdTimer", no_timerfd)
    asyncio.run(main())


def test_sleeper_wakes_only_for_the_sources_it_was_told() -> None:
    async def main() -> None:
        clock = VirtualClock()
        sleeper = Sleeper(clock.new_timer)
        loop = asyncio.get_running_loop()
        sleeper.notify(1)  # before the wait: lost, the caller looks at its queues
        loop.call_later(0.010, sleeper.notify, 2)
        loop.call_later(0.020, sleeper.notify, 4)
        loop.call_later(0.020, sleeper.notify, 1)
        await sleeper.wait(1 | 4, 100.0)
        assert round(clock.now_ms()) == 20
        await sleeper.wait(1, 100.0)
        assert clock.now_ms() == 100.0

    run_virtual(main())


def test_sleeper_cancelled_in_its_wait_can_wait_again() -> None:
    async def main() -> None:
        clock = VirtualClock()
        sleeper = Sleeper(clock.new_timer)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.005):
                await sleeper.wait(1, 10.0)
        sleeper.notify(1)
        await sleeper.wait(1, 20.0)
        assert clock.now_ms() == 20.0

    run_virtual(main())


def test_manual_clock_fires_what_is_due_in_order_and_never_goes_back() -> None:
    clock = ManualClock(5.0)
    fired: list[tuple[str, float]] = []
    early = clock.new_timer(lambda: fired.append(("early", clock.now_ms())))
    late = clock.new_timer(lambda: fired.append(("late", clock.now_ms())))
    late.arm(30.0)
    early.arm(25.0)
    early.arm(10.0)
    clock.advance(2.0)
    assert fired == []
    clock.advance_to(40.0)
    assert fired == [("early", 10.0), ("late", 30.0)]
    assert clock.now_ms() == 40.0
    late.arm(50.0)
    late.close()
    clock.advance_to(60.0)
    assert len(fired) == 2
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance_to(59.0)


def test_engine_runs_on_a_manual_clock() -> None:
    from mocker_core.engine_args import MockEngineArgs
    from mocker_core.live.engine import MockEngine
    from tests.live.fakes import FakeCore, RecordingListener, make_request

    async def main() -> None:
        clock = ManualClock()
        listener = RecordingListener([])
        engine = MockEngine(
            MockEngineArgs(), listener, clock=clock, core_factory=lambda _, rank: FakeCore(rank)
        )
        await engine.start()
        engine.submit(make_request("a", tokens=2))
        for now_ms in (5.0, 9.999, 10.0, 19.0, 25.0):
            for _ in range(5):
                await asyncio.sleep(0)
            clock.advance_to(now_ms)
        for _ in range(5):
            await asyncio.sleep(0)
        assert listener.tokens == {"a": [10.0, 20.0]}
        await engine.stop()

    asyncio.run(main())
