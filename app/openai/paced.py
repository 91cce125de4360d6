"""Tokens that go out later than the engine made them, stop coming, or end with the connection.

A `PacedSink` stands between the dispatcher and a run. Each due time is the engine's plan plus the delay, so
delays never add up errors of timers. The engine knows nothing of it: its blocks are freed by its own plan.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from app.dispatch import Dispatcher
from app.faults import NO_CHANGE, Pace
from app.openai.choice import ChoiceRun, Outcome
from mocker_core.errors import EngineDeadError
from mocker_core.events import OutputSignal

if TYPE_CHECKING:
    from app.state import AppState

_PACER = "pacer"


class Pacer:
    """The paced requests of one server; `end` lets those that still wait fail when it stops."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self._waiting: set[PacedSink] = set()
        self._look_at = 64

    def add(self, sink: PacedSink) -> None:
        """Remember it until it has ended. Those whose clients left are forgotten now and then."""
        if len(self._waiting) >= self._look_at:
            self._waiting = {other for other in self._waiting if other.running}
            self._look_at = max(64, 2 * len(self._waiting))
        self._waiting.add(sink)

    def discard(self, sink: PacedSink) -> None:
        self._waiting.discard(sink)

    def end(self) -> None:
        for sink in tuple(self._waiting):
            sink.fail(EngineDeadError("The server is stopping."))
        self.dispatcher.flush()


def pacer_of(state: AppState) -> Pacer:
    found = state.extras.get(_PACER)
    if found is None:
        found = state.extras[_PACER] = Pacer(state.dispatcher)
        state.stream_enders.append(found.end)
    pacer: Pacer = found
    return pacer


class PacedSink:
    """`drop` cuts the client's connection off."""

    __slots__ = ("_drop", "_due_ms", "_pace", "_pacer", "_queue", "_run", "_seen", "_timer")

    def __init__(self, run: ChoiceRun, pace: Pace, pacer: Pacer, drop: Callable[[], None]) -> None:
        assert pace != NO_CHANGE
        self._run = run
        self._pace = pace
        self._pacer = pacer
        self._drop = drop
        self._queue: deque[tuple[float, Callable[[float], None]]] = deque()
        self._due_ms = 0.0
        self._seen = 0
        self._timer: asyncio.TimerHandle | None = None
        if pace.disconnect_after == 0:
            asyncio.get_running_loop().call_soon(drop)

    @property
    def running(self) -> bool:
        return self._run.outcome is Outcome.RUNNING

    def admitted(self, reused_input_tokens: int, readmission: bool, dp_rank: int, now_ms: float) -> None:
        self._run.admitted(reused_input_tokens, readmission, dp_rank, now_ms)

    def preempted(self) -> None:
        self._run.preempted()

    def token(self, token_id: int | None, end_ms: float) -> None:
        self._later(lambda due_ms: self._run.token(token_id, due_ms), end_ms)

    def end(self, signal: OutputSignal, end_ms: float) -> None:
        if signal.rejected:
            self._run.end(signal, end_ms)
        else:
            self._later(lambda due_ms: self._run.end(signal, due_ms), end_ms)

    def fail(self, error: Exception) -> None:
        self._give_up()
        if self.running:
            self._run.fail(error)

    def _later(self, act: Callable[[float], None], end_ms: float) -> None:
        pace, place = self._pace, self._seen
        self._seen += 1
        if pace.disconnect_after is not None and place >= pace.disconnect_after:
            return  # it is cut off already, or at the end of this turn of the loop
        due_ms = end_ms + pace.ttft_ms + pace.itl_ms * place
        if pace.stall_after is not None and place >= pace.stall_after:
            if pace.stall_ms is None:
                self._pacer.add(self)
                return
            due_ms += pace.stall_ms
        self._due_ms = max(self._due_ms, due_ms)
        if self._due_ms <= end_ms and not self._queue:
            self._act(act, self._due_ms)
            return
        self._queue.append((self._due_ms, act))
        self._pacer.add(self)
        if self._timer is None:
            self._set_timer()

    def _set_timer(self) -> None:
        wait_ms = self._queue[0][0] - self._pacer.dispatcher.now_ms()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, wait_ms / 1000), self._wake)

    def _wake(self) -> None:
        self._timer = None
        if not self.running:
            self._give_up()
            return
        now_ms = self._pacer.dispatcher.now_ms()
        while self._queue and self._queue[0][0] <= now_ms:
            due_ms, act = self._queue.popleft()
            self._act(act, due_ms)
        if self._queue:
            self._set_timer()
        elif not self.running or self._pace.stall_after is None:
            self._pacer.discard(self)
        self._pacer.dispatcher.flush()

    def _act(self, act: Callable[[float], None], due_ms: float) -> None:
        act(due_ms)
        if self._run.generated == self._pace.disconnect_after:
            # The flush that follows sends this token first.
            asyncio.get_running_loop().call_soon(self._drop)

    def _give_up(self) -> None:
        self._queue.clear()
        self._pacer.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
