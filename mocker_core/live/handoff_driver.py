"""Carries out one coordinator's actions over two ends, which may be ranks of this server or other servers.

Owns the order of actions per side, the transfer's delay and the session timer. Knows neither HTTP nor
schedulers: a `SourceEnd` and a `DestinationEnd` do the work, facts come in by `observe`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from mocker_core.commands import (
    ActivateDestination,
    CancelDestination,
    CancelSource,
    CommandEffects,
    Noop,
    ReleaseSource,
    ReserveDestination,
    SchedulerCommand,
    SubmitHandoffPrefill,
)
from mocker_core.errors import EngineDeadError, HandoffProtocolError, MockerError
from mocker_core.events import SchedulerLifecycleEvent, SourceExpired, SourceHeld
from mocker_core.handoff.coordinator import (
    AckOutcome,
    Actions,
    Cancelled,
    Failed,
    HandoffAction,
    HandoffCoordinator,
    HandoffFact,
    HandoffSide,
    TimedOut,
    TransferCompleted,
)
from mocker_core.handoff.coordinator_table import ActionKind, HandoffState
from mocker_core.request import DirectRequest, HandoffId


@dataclass(frozen=True, slots=True)
class Ack:
    """What became of an action at one end; `error` is what a refusal was raised as."""

    outcome: AckOutcome
    reason: str = ""
    error: MockerError | None = None


class SourceEnd(Protocol):
    """The prefill side. Each call is made once, one at a time, and must end by itself (LOST, if need be)."""

    async def submit_prefill(self) -> Ack: ...

    async def release(self) -> Ack: ...

    async def cancel(self) -> Ack: ...


class DestinationEnd(Protocol):
    """The decode side, under the same rules."""

    async def reserve(self) -> Ack: ...

    async def activate(self) -> Ack: ...

    async def cancel(self) -> Ack: ...


class CommandsEngine(Protocol):
    """The one call of `MockEngine` that a local end needs."""

    async def command(self, command: SchedulerCommand, dp_rank: int | None = None) -> CommandEffects: ...


@dataclass(frozen=True, slots=True)
class LocalSource:
    """A rank of this process as the source."""

    engine: CommandsEngine
    handoff_id: HandoffId
    request: DirectRequest
    dp_rank: int | None = None

    async def submit_prefill(self) -> Ack:
        return await _told(self.engine, SubmitHandoffPrefill(self.handoff_id, self.request), self.dp_rank)

    async def release(self) -> Ack:
        return await _told(self.engine, ReleaseSource(self.handoff_id))

    async def cancel(self) -> Ack:
        return await _told(self.engine, CancelSource(self.handoff_id))


@dataclass(frozen=True, slots=True)
class LocalDestination:
    """A rank of this process as the destination."""

    engine: CommandsEngine
    handoff_id: HandoffId
    request: DirectRequest
    dp_rank: int | None = None

    async def reserve(self) -> Ack:
        return await _told(self.engine, ReserveDestination(self.handoff_id, self.request), self.dp_rank)

    async def activate(self) -> Ack:
        return await _told(self.engine, ActivateDestination(self.handoff_id))

    async def cancel(self) -> Ack:
        return await _told(self.engine, CancelDestination(self.handoff_id))


async def _told(engine: CommandsEngine, command: SchedulerCommand, dp_rank: int | None = None) -> Ack:
    try:
        effects = await engine.command(command, dp_rank)
    except EngineDeadError as error:
        return Ack(AckOutcome.LOST, str(error), error)
    except MockerError as error:
        return Ack(AckOutcome.REFUSED, str(error), error)
    return Ack(AckOutcome.NOOP if isinstance(effects.result, Noop) else AckOutcome.APPLIED)


_SIDES: Final = {
    ActionKind.SUBMIT_PREFILL: HandoffSide.SOURCE,
    ActionKind.RELEASE_SOURCE: HandoffSide.SOURCE,
    ActionKind.CANCEL_SOURCE: HandoffSide.SOURCE,
    ActionKind.RESERVE: HandoffSide.DESTINATION,
    ActionKind.ACTIVATE: HandoffSide.DESTINATION,
    ActionKind.CANCEL_DESTINATION: HandoffSide.DESTINATION,
}

Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Acknowledged:
    kind: ActionKind
    ack: Ack


class HandoffDriver:
    """Runs one handoff: `run()` returns its COMPLETE action once both sides have been told all they must be.

    `session_timeout_ms` counts from the start, without the modelled transfer; the cancels that follow
    trouble get as long again. `note` hears of each step in words, for a timeline.
    """

    def __init__(
        self,
        coordinator: HandoffCoordinator,
        source: SourceEnd,
        destination: DestinationEnd,
        *,
        session_timeout_ms: float,
        note: Note | None = None,
    ) -> None:
        self.coordinator = coordinator
        self._work: dict[ActionKind, Callable[[], Awaitable[Ack]]] = {
            ActionKind.SUBMIT_PREFILL: source.submit_prefill,
            ActionKind.RELEASE_SOURCE: source.release,
            ActionKind.CANCEL_SOURCE: source.cancel,
            ActionKind.RESERVE: destination.reserve,
            ActionKind.ACTIVATE: destination.activate,
            ActionKind.CANCEL_DESTINATION: destination.cancel,
        }
        self._timeout_s = session_timeout_ms / 1000
        self._note = note or (lambda _: None)
        self._inbox: asyncio.Queue[HandoffFact | _Acknowledged] = asyncio.Queue()
        self._lanes: dict[HandoffSide, asyncio.Queue[ActionKind | None]] = {
            side: asyncio.Queue() for side in HandoffSide
        }
        self._timer: asyncio.TimerHandle | None = None
        self._transfer: asyncio.TimerHandle | None = None
        self._end: HandoffAction | None = None

    def observe(self, fact: HandoffFact) -> None:
        """Take a fact from either side, in the order in which they happened; never blocks."""
        self._inbox.put_nowait(fact)

    def observe_lifecycle(self, event: SchedulerLifecycleEvent) -> None:
        self.observe(event)

    def cancel(self, reason: str = "The handoff was cancelled.") -> None:
        """Nobody wants it any more: `run()` cleans up and returns."""
        self.observe(Cancelled(reason))

    async def run(self) -> HandoffAction:
        """Drive the handoff to its end. Call once."""
        try:
            async with asyncio.TaskGroup() as group:
                for lane in self._lanes.values():
                    group.create_task(self._run_lane(lane))
                self._arm(self._timeout_s)
                self._carry_out(self.coordinator.start())
                while self._end is None:
                    self._carry_out(self._answer(await self._inbox.get()))
                self._disarm()
                # Cancels that nobody confirmed yet are still carried out.
                for lane in self._lanes.values():
                    lane.put_nowait(None)
        finally:
            self._disarm()
        return self._end

    def _answer(self, item: HandoffFact | _Acknowledged) -> Actions:
        was_draining = self.coordinator.state is HandoffState.DRAINING
        actions = self._taken(item)
        if self.coordinator.state is HandoffState.DRAINING and not was_draining:
            self._stop_transfer()
            self._arm(self._timeout_s)
        return actions

    def _taken(self, item: HandoffFact | _Acknowledged) -> Actions:
        try:
            if isinstance(item, _Acknowledged):
                self._note(f"{item.kind}: {item.ack.outcome}")
                return self.coordinator.acknowledge(item.kind, item.ack.outcome, item.ack.reason)
            self._note(_in_words(item))
            return self.coordinator.observe(item)
        except HandoffProtocolError as error:
            # A side that contradicts itself is broken; the handoff ends, but is cleaned up.
            return self.coordinator.observe(Failed(_side_of(item), str(error)))

    def _carry_out(self, actions: Actions) -> None:
        for action in actions:
            if action.kind is ActionKind.COMPLETE:
                self._note(f"complete: {action.outcome}")
                self._stop_transfer()
                self._end = action
            elif action.kind is ActionKind.START_TRANSFER:
                self._inbox.put_nowait(_Acknowledged(action.kind, Ack(AckOutcome.APPLIED)))
                self._start_transfer((action.delay_ms or 0.0) / 1000)
            else:
                self._lanes[_SIDES[action.kind]].put_nowait(action.kind)

    async def _run_lane(self, lane: asyncio.Queue[ActionKind | None]) -> None:
        """One side's actions, one after the other, so that a cancel never overtakes what it cancels."""
        while (kind := await lane.get()) is not None:
            ack = await self._work[kind]()
            self._inbox.put_nowait(_Acknowledged(kind, ack))

    def _start_transfer(self, delay_s: float) -> None:
        end_s = asyncio.get_running_loop().time() + delay_s
        self._arm(self._left_s() + delay_s)
        self._transfer_due(end_s)

    def _transfer_due(self, end_s: float) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < end_s:  # some loops wake a little early
            self._transfer = loop.call_at(end_s, self._transfer_due, end_s)
        else:
            self.observe(TransferCompleted())

    def _left_s(self) -> float:
        return 0.0 if self._timer is None else self._timer.when() - asyncio.get_running_loop().time()

    def _arm(self, timeout_s: float) -> None:
        self._disarm()
        self._timer = asyncio.get_running_loop().call_later(timeout_s, self.observe, TimedOut())

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_transfer(self) -> None:
        if self._transfer is not None:
            self._transfer.cancel()


def _side_of(item: HandoffFact | _Acknowledged) -> HandoffSide:
    if isinstance(item, _Acknowledged):
        return _SIDES.get(item.kind, HandoffSide.DESTINATION)
    return HandoffSide.SOURCE if isinstance(item, SourceHeld | SourceExpired) else HandoffSide.DESTINATION


def _in_words(fact: HandoffFact) -> str:
    """CamelCase to words: SourceHeld is "source held"."""
    return "".join(f" {c.lower()}" if c.isupper() else c for c in type(fact).__name__).strip()
