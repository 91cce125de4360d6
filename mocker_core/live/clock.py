"""The engine's time: ms since the clock was made, monotonic.

Owns `Clock` and its two implementations. Knows nothing of the scheduler; the core never sees a clock.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable
from typing import Protocol

from mocker_core.live.precise_wait import Timer, precise_timer


class Clock(Protocol):
    """Where the live loop gets its time and its alarms from."""

    def now_ms(self) -> float:
        """Ms since the clock was made; never goes back."""

    def new_timer(self, on_due: Callable[[], None]) -> Timer:
        """A new alarm on this clock; called with a running event loop."""


class WallClock:
    """Real time on the system's monotonic clock."""

    __slots__ = ("_start_s",)

    def __init__(self) -> None:
        self._start_s = time.monotonic()

    def now_ms(self) -> float:
        return (time.monotonic() - self._start_s) * 1000.0

    def new_timer(self, on_due: Callable[[], None]) -> Timer:
        return precise_timer(self.now_ms, on_due)


class ManualClock:
    """A clock that moves only when told; timers fire inside `advance_to`, in order of their deadlines."""

    def __init__(self, now_ms: float = 0.0) -> None:
        self._now_ms = now_ms
        self._order = itertools.count()
        self._alarms: list[tuple[float, int, _ManualTimer]] = []

    def now_ms(self) -> float:
        return self._now_ms

    def new_timer(self, on_due: Callable[[], None]) -> Timer:
        return _ManualTimer(self, on_due)

    def advance_to(self, now_ms: float) -> None:
        """Move forward to `now_ms`, firing what is due on the way. Raises ValueError on going back."""
        if now_ms < self._now_ms:
            raise ValueError(f"The clock is at {self._now_ms} ms; it cannot go back to {now_ms} ms.")
        while self._alarms and self._alarms[0][0] <= now_ms:
            deadline_ms, turn, timer = heapq.heappop(self._alarms)
            self._now_ms = max(self._now_ms, deadline_ms)
            timer.fire(turn)
        self._now_ms = now_ms

    def advance(self, by_ms: float) -> None:
        self.advance_to(self._now_ms + by_ms)

    def _schedule(self, deadline_ms: float, timer: _ManualTimer) -> int:
        turn = next(self._order)
        heapq.heappush(self._alarms, (deadline_ms, turn, timer))
        return turn


class _ManualTimer:
    __slots__ = ("_clock", "_on_due", "_turn")

    def __init__(self, clock: ManualClock, on_due: Callable[[], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._turn = -1

    def arm(self, deadline_ms: float) -> None:
        self._turn = self._clock._schedule(deadline_ms, self)

    def disarm(self) -> None:
        self._turn = -1

    def close(self) -> None:
        self.disarm()

    def fire(self, turn: int) -> None:
        if turn == self._turn:
            self._turn = -1
            self._on_due()
