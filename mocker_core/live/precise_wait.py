"""Waiting until a planned instant, never early and without a busy loop.

Owns the two timers (a Linux timerfd, and the event loop's own timer as the fallback) and the
`Sleeper`, the one place where a rank's task waits. Knows nothing of passes or the scheduler.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import math
import os
import sys
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """One re-armable alarm. Deadlines in ms on the clock that made it."""

    def arm(self, deadline_ms: float) -> None:
        """Call `on_due` once the clock reads `deadline_ms` or more; replaces an earlier deadline."""

    def disarm(self) -> None: ...

    def close(self) -> None: ...


# The event loop may fire a timer early (uvloop counts whole milliseconds from a cached time).
# A shorter re-arm than this would be rounded to zero there, and spin.
_REARM_MS = 1.0


class LoopTimer:
    """The event loop's own timer: everywhere available, up to 1-2 ms late."""

    __slots__ = ("_deadline_ms", "_handle", "_loop", "_now_ms", "_on_due")

    def __init__(self, now_ms: Callable[[], float], on_due: Callable[[], None]) -> None:
        self._now_ms = now_ms
        self._on_due = on_due
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._deadline_ms = 0.0

    def arm(self, deadline_ms: float) -> None:
        self.disarm()
        self._deadline_ms = deadline_ms
        remaining_ms = max(0.0, deadline_ms - self._now_ms())
        self._handle = self._loop.call_later(remaining_ms / 1000.0, self._fire)

    def disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def close(self) -> None:
        self.disarm()

    def _fire(self) -> None:
        self._handle = None
        remaining_ms = self._deadline_ms - self._now_ms()
        if remaining_ms > 0:
            self._handle = self._loop.call_later(max(remaining_ms, _REARM_MS) / 1000.0, self._fire)
            return
        self._on_due()


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


_CLOCK_MONOTONIC = 1
_NS_PER_S = 1_000_000_000


class TimerfdTimer:
    """A kernel timer of nanosecond grain in the event loop's own poll; about 0.1 ms late.

    Raises OSError or AttributeError where the platform, libc or event loop has no such thing.
    """

    __slots__ = (
        "_armed",
        "_deadline_ms",
        "_fd",
        "_loop",
        "_now_ms",
        "_on_due",
        "_settime",
        "_spec",
        "_spec_ref",
    )

    def __init__(self, now_ms: Callable[[], float], on_due: Callable[[], None]) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._settime = libc.timerfd_settime
        fd: int = libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._fd = fd
        self._now_ms = now_ms
        self._on_due = on_due
        self._spec = _Itimerspec()
        self._spec_ref = ctypes.byref(self._spec)
        self._deadline_ms = 0.0
        self._armed = False
        self._loop = asyncio.get_running_loop()
        try:
            self._loop.add_reader(fd, self._fire)
        except (NotImplementedError, OSError):
            os.close(fd)
            raise OSError("this event loop cannot watch a timerfd") from None

    def arm(self, deadline_ms: float) -> None:
        self._deadline_ms = deadline_ms
        self._armed = True
        # At least 1 ns: a zero value would disarm the timer instead of firing it.
        remaining_ns = max(1, math.ceil((deadline_ms - self._now_ms()) * 1e6))
        self._set(remaining_ns)

    def disarm(self) -> None:
        # The kernel timer is left running: a later arm() replaces it, and a stale expiry is ignored.
        self._armed = False

    def close(self) -> None:
        if self._fd >= 0:
            if not self._loop.is_closed():
                self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _set(self, remaining_ns: int) -> None:
        value = self._spec.it_value
        value.tv_sec, value.tv_nsec = divmod(remaining_ns, _NS_PER_S)
        if self._settime(self._fd, 0, self._spec_ref, None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def _fire(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd, 8)
        if not self._armed:
            return
        if self._now_ms() < self._deadline_ms:
            self.arm(self._deadline_ms)
            return
        self._armed = False
        self._on_due()


def precise_timer(now_ms: Callable[[], float], on_due: Callable[[], None]) -> Timer:
    """The best timer for a wall clock on this platform and event loop (needs a running loop)."""
    if sys.platform == "linux":
        try:
            return TimerfdTimer(now_ms, on_due)
        except (OSError, AttributeError):
            pass
    return LoopTimer(now_ms, on_due)


class Sleeper:
    """The one place where one task waits: for sources it names, or for an instant of its clock.

    Sources are bits. `notify` costs nothing while nobody waits for that bit; no task and, but for
    one future per wait, nothing is created.
    """

    __slots__ = ("_future", "_loop", "_sources", "_timer")

    def __init__(self, new_timer: Callable[[Callable[[], None]], Timer]) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] | None = None
        self._sources = 0
        self._timer = new_timer(self._wake)

    def notify(self, source: int) -> None:
        if source & self._sources:
            self._wake()

    async def wait(self, sources: int, deadline_ms: float | None) -> None:
        """Return once one of `sources` was notified or the clock reads `deadline_ms`.

        The caller checks its queues before and after: only a notification made during the wait wakes it.
        """
        self._future = self._loop.create_future()
        self._sources = sources
        if deadline_ms is not None:
            self._timer.arm(deadline_ms)
        try:
            await self._future
        finally:
            self._sources = 0
            self._future = None
            if deadline_ms is not None:
                self._timer.disarm()

    def close(self) -> None:
        """Give the timer back. The sleeper must not be used again."""
        self._timer.close()

    def _wake(self) -> None:
        future = self._future
        if future is not None and not future.done():
            future.set_result(None)
