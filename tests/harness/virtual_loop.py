"""An asyncio loop whose time jumps: when nothing is ready, the wait is added to virtual time, not slept.

In-process only: with sockets in flight time would jump past their answers. A program that waits for
nothing at all fails at once instead of hanging.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from mocker_core.live.precise_wait import Timer

T = TypeVar("T")

# How long another thread may need to answer when the loop has nothing else to do (real seconds).
_THREAD_GRACE_S = 2.0


class VirtualDeadlockError(RuntimeError):
    """Nothing is ready, no timer is set and no thread answered: real time would wait for ever."""


class _JumpingSelector(selectors.BaseSelector):
    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            ready = self._real.select(_THREAD_GRACE_S)
            if not ready:
                raise VirtualDeadlockError("nothing is ready and no timer is set")
            return ready
        ready = self._real.select(0)
        if not ready and timeout > 0:
            self.now_s += timeout
        return ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Any:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its `time()` starts at 0 s."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now_s

    def spend_ms(self, work_ms: float) -> None:
        """Pretend that the running callback computed for so long."""
        self._jumping.now_s += work_ms / 1000.0


def spend_ms(work_ms: float) -> None:
    """Let virtual time pass without giving the event loop a turn, as computing does."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.spend_ms(work_ms)


class VirtualClock:
    """The engine's clock on a virtual loop: it reads exactly a deadline's ms when that deadline fires."""

    def __init__(self) -> None:
        self._reached_ms = 0.0

    def now_ms(self) -> float:
        # Seconds and back loses the last bit; the deadlines reached are the exact figures.
        now_ms = asyncio.get_running_loop().time() * 1000.0
        return self._reached_ms if abs(now_ms - self._reached_ms) < 1e-6 else now_ms

    def new_timer(self, on_due: Callable[[], None]) -> Timer:
        return _VirtualTimer(self, on_due)

    def _reach(self, deadline_ms: float) -> None:
        self._reached_ms = max(self._reached_ms, deadline_ms)


class _VirtualTimer:
    def __init__(self, clock: VirtualClock, on_due: Callable[[], None]) -> None:
        self._clock = clock
        self._on_due = on_due
        self._handle: asyncio.TimerHandle | None = None

    def arm(self, deadline_ms: float) -> None:
        self.disarm()
        self._handle = asyncio.get_running_loop().call_at(deadline_ms / 1000.0, self._fire, deadline_ms)

    def disarm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def close(self) -> None:
        self.disarm()

    def _fire(self, deadline_ms: float) -> None:
        self._handle = None
        self._clock._reach(deadline_ms)
        self._on_due()


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
