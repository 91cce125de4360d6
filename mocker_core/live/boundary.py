"""The waits of one rank's loop and what is done in them: receive until schedulable, wait for the pass
boundary, the controls after a pass, wait for progress (docs/pass-boundary.md).

Owns the order in which inputs are served. Which pass runs when is `plan`'s and `rank_loop`'s.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from mocker_core.commands import Applied, CancelRequest, CommandEffects, Noop, can_apply_during_pass
from mocker_core.errors import MockerError
from mocker_core.live.channels import (
    CANCELLATION,
    COMMAND,
    GATE,
    LIFECYCLE_SPACE,
    REQUEST,
    SHUTDOWN,
    CancellationIntake,
    CommandChannel,
    CommandEnvelope,
    CoreCall,
    LifecycleChannel,
    RequestIntake,
)
from mocker_core.live.clock import Clock
from mocker_core.live.gate import Gate
from mocker_core.live.live_ids import LiveIds
from mocker_core.live.plan import PassPlan
from mocker_core.live.precise_wait import Sleeper
from mocker_core.live.protocols import LiveCore
from mocker_core.live.publisher import LiveEffectsPublisher

# A deadline that is due already is served after this long, so that one that stays due can't spin.
DUE_DEADLINE_MS: Final = 1.0


class RankPorts:
    """Everything that leads into and out of one rank's loop; the loop and `MockEngine` share it."""

    def __init__(self, clock: Clock, handoff_capacity: int) -> None:
        self.sleeper = Sleeper(clock.new_timer)
        notify = self.sleeper.notify
        self.requests = RequestIntake(notify)
        self.commands = CommandChannel(2 * handoff_capacity, notify)
        self.cancellations = CancellationIntake(notify)
        self.lifecycle = LifecycleChannel(2 * handoff_capacity, notify)
        self.gate = Gate(notify)
        self.shutting_down = False

    def shut_down(self) -> None:
        self.shutting_down = True
        self.sleeper.notify(SHUTDOWN)


@dataclass(frozen=True, slots=True)
class RankContext:
    """What the loop of one rank works with."""

    dp_rank: int
    core: LiveCore
    ports: RankPorts
    publisher: LiveEffectsPublisher
    plan: PassPlan
    clock: Clock
    ids: LiveIds
    controls_enabled: bool


class Boundary:
    """Serves one rank's inputs between and during passes: always shutdown first, then cancellations."""

    def __init__(self, context: RankContext) -> None:
        self._core = context.core
        self._ports = context.ports
        self._publisher = context.publisher
        self._plan = context.plan
        self._clock = context.clock
        self._ids = context.ids
        self._controls = context.controls_enabled
        self._gate = context.ports.gate
        self._idle_sources = SHUTDOWN | CANCELLATION | GATE | (COMMAND if self._controls else 0)
        # The engine time last told to the core; it never goes back.
        self._engine_ms = 0.0
        self._deferred: CommandEnvelope | None = None
        context.publisher.on_lifecycle_full = self._wait_for_lifecycle_space

    async def receive_until_schedulable(self) -> float | None:
        """Wait until the core has work; returns the next pass's now_ms, or None once the loop is to end.

        What joins the pass was received at or before that moment; the rest stays in its channel.
        """
        ports, plan, core, gate = self._ports, self._plan, self._core, self._gate
        while not ports.shutting_down:
            if plan.next_ms is not None:
                arrived_later = plan.saturated and self._arrived_after(plan.next_ms)
                now_ms = plan.start_ms(self._clock.now_ms(), arrived_later=arrived_later)
                self._engine_ms = now_ms
                if ports.cancellations:
                    await self._serve_cancellations(now_ms)
                if self._controls and ports.commands:
                    await self._apply_waiting_commands(now_ms)
                if ports.requests and gate.takes_requests:
                    self._receive_waiting_requests(now_ms)
                if not core.is_empty() and gate.runs_passes:
                    return now_ms
                plan.release()
            if not await self._wait_while_empty():
                return None
            plan.anchor(self._idle_now_ms())
        return None

    async def wait_for_pass_boundary(self, end_ms: float) -> bool:
        """Wait until the clock reads `end_ms`, never less; False once the loop is to end.

        Order: shutdown, cancellations, pass end, deadline, commands while the intake is open.
        """
        ports, plan, clock = self._ports, self._plan, self._clock
        accept_commands = self._controls
        waited = yielded = False
        deadline_ms: float | None = None
        tick_at_ms: float | None = None
        while True:
            if ports.shutting_down:
                return False
            now_ms = clock.now_ms()
            if ports.cancellations:
                self._cancel_during_pass(self._pass_now_ms(now_ms, end_ms))
            if now_ms >= end_ms:
                if not yielded and plan.slice_over(now_ms):
                    await self._yield(end_ms)
                    yielded = True
                    continue
                self._engine_ms = end_ms
                plan.pass_ended(now_ms, end_ms, waited=waited)
                return True
            if tick_at_ms is not None and deadline_ms is not None and now_ms >= tick_at_ms:
                self._advance_during_pass(max(self._pass_now_ms(now_ms, end_ms), deadline_ms))
                tick_at_ms = None
                continue
            if accept_commands and ports.commands:
                accept_commands = self._take_command_during_pass(self._pass_now_ms(now_ms, end_ms))
                tick_at_ms = None
                continue
            if tick_at_ms is None:
                deadline_ms = self._core.next_deadline_ms()
                tick_at_ms = _tick_at_ms(deadline_ms, now_ms)
            wake_at_ms = end_ms if tick_at_ms is None else min(end_ms, tick_at_ms)
            sources = SHUTDOWN | CANCELLATION | (COMMAND if accept_commands else 0)
            await self._wait(sources, wake_at_ms, end_ms)
            waited = True

    async def apply_controls(self) -> bool:
        """After a pass: the deferred command, those waiting, then one retry of the pending destinations.

        Returns whether a command was processed or a destination granted.
        """
        now_ms = self._engine_ms
        processed = False
        if (envelope := self.take_deferred()) is not None:
            await self._apply_outside_pass(envelope, now_ms)
            processed = True
        if self._ports.commands:
            processed = await self._apply_waiting_commands(now_ms) or processed
        return await self._retry_destinations(now_ms) or processed

    async def wait_for_progress_wake(self) -> bool:
        """Nothing can go on: wait for a cancellation, a command, a request or the next deadline, in this
        order, and serve one. A deadline only wakes. False once the loop is to end.
        """
        ports = self._ports
        tick_at_ms = _tick_at_ms(self._core.next_deadline_ms(), self._clock.now_ms())
        while not ports.shutting_down:
            now_ms = self._idle_now_ms()
            if ports.cancellations:
                await self._serve_cancellations(now_ms)
            elif self._controls and ports.commands:
                await self._apply_outside_pass(ports.commands.take(), now_ms)
            elif ports.requests and self._gate.takes_requests:
                self._receive_one()
            elif tick_at_ms is None or now_ms < tick_at_ms:
                await self._wait(self._waking_sources(), tick_at_ms, now_ms)
                continue
            self._plan.anchor(self._idle_now_ms())
            return True
        return False

    async def yield_once(self) -> None:
        """A pass of no time made progress: give the event loop one turn."""
        await self._yield(self._engine_ms)

    def take_deferred(self) -> CommandEnvelope | None:
        """The command that waits for the boundary, if one does; it is the caller's now."""
        envelope, self._deferred = self._deferred, None
        return envelope

    async def _wait_while_empty(self) -> bool:
        """Idle: serve shutdown, cancellations, commands, requests, deadline, until the core has work."""
        ports, core, gate = self._ports, self._core, self._gate
        deadline_ms: float | None = None
        tick_at_ms: float | None = None
        while core.is_empty() or not gate.runs_passes:
            if ports.shutting_down:
                return False
            if core.is_empty():
                gate.drained()
            now_ms = self._idle_now_ms()
            if ports.cancellations:
                await self._serve_cancellations(now_ms)
            elif self._controls and ports.commands:
                await self._apply_outside_pass(ports.commands.take(), now_ms)
            elif ports.requests and gate.takes_requests:
                self._receive_one()
            elif tick_at_ms is not None and deadline_ms is not None and now_ms >= tick_at_ms:
                self._engine_ms = max(now_ms, deadline_ms)
                effects = core.advance(self._engine_ms, allow_destination_grant=True)
                await self._publisher.publish_effects(effects)
            else:
                deadline_ms = core.next_deadline_ms()
                tick_at_ms = _tick_at_ms(deadline_ms, now_ms)
                await self._wait(self._waking_sources(), tick_at_ms, now_ms)
                continue
            tick_at_ms = None
        return True

    async def _wait_for_lifecycle_space(self) -> bool:
        if self._ports.shutting_down:
            return False
        if self._ports.cancellations:
            self._cancel_outside_pass(self._engine_ms)
        await self._wait(SHUTDOWN | CANCELLATION | LIFECYCLE_SPACE, None, self._engine_ms)
        return not self._ports.shutting_down

    async def _wait(self, sources: int, deadline_ms: float | None, plan_ms: float) -> None:
        self._publisher.flush()
        await self._ports.sleeper.wait(sources, deadline_ms)
        self._plan.waited(self._clock.now_ms(), plan_ms)

    async def _yield(self, plan_ms: float) -> None:
        self._plan.slice_ended(self._clock.now_ms(), plan_ms)
        self._publisher.flush()
        await asyncio.sleep(0)
        self._plan.slice_began(self._clock.now_ms(), plan_ms)

    def _waking_sources(self) -> int:
        """What ends a wait in which no pass is under way."""
        return self._idle_sources | REQUEST if self._gate.takes_requests else self._idle_sources

    def _idle_now_ms(self) -> float:
        """Engine time where no pass is under way: the clock's."""
        self._engine_ms = max(self._engine_ms, self._clock.now_ms())
        return self._engine_ms

    def _pass_now_ms(self, clock_ms: float, end_ms: float) -> float:
        """Engine time during a pass: the clock's, but not past the end at which the next pass starts."""
        self._engine_ms = max(self._engine_ms, min(clock_ms, end_ms))
        return self._engine_ms

    def _arrived_after(self, planned_ms: float) -> bool:
        for first_ms in (self._ports.requests.first_received_ms(), self._ports.commands.first_received_ms()):
            if first_ms is not None and first_ms > planned_ms:
                return True
        return False

    def _receive_one(self) -> None:
        self._publisher.core_changed()
        self._core.receive(self._ports.requests.take())

    def _receive_waiting_requests(self, now_ms: float) -> None:
        requests = self._ports.requests
        while (first_ms := requests.first_received_ms()) is not None and first_ms <= now_ms:
            self._receive_one()

    async def _serve_cancellations(self, now_ms: float) -> None:
        """Outside a pass. What they freed may be what a pending destination lacks, and no pass may follow."""
        self._cancel_outside_pass(now_ms)
        if self._controls:
            await self._retry_destinations(now_ms)

    async def _retry_destinations(self, now_ms: float) -> bool:
        """One grant attempt; whether a destination was granted."""
        effects = self._core.retry_destinations(now_ms)
        if effects.granted or effects.lifecycle or effects.kv_events:
            await self._publisher.publish_effects(effects)
        return effects.granted

    async def _apply_waiting_commands(self, now_ms: float) -> bool:
        commands = self._ports.commands
        processed = False
        while (first_ms := commands.first_received_ms()) is not None and first_ms <= now_ms:
            await self._apply_outside_pass(commands.take(), now_ms)
            processed = True
        return processed

    async def _apply_outside_pass(self, envelope: CommandEnvelope, now_ms: float) -> None:
        effects = self._apply(envelope, now_ms, allow_destination_grant=True)
        if effects is not None:
            await self._publisher.publish_command(envelope, effects)

    def _take_command_during_pass(self, now_ms: float) -> bool:
        """Apply the oldest command, or defer it; False then, which closes the intake."""
        envelope = self._ports.commands.take()
        if not can_apply_during_pass(envelope.command):
            self._deferred = envelope
            return False
        effects = self._apply(envelope, now_ms, allow_destination_grant=False)
        if effects is not None:
            self._publisher.hold_back(effects)
            self._publisher.reply(envelope, effects)
        return True

    def _apply(
        self, envelope: CommandEnvelope, now_ms: float, *, allow_destination_grant: bool
    ) -> CommandEffects | None:
        """None if the core refused it; the sender has its error then."""
        command = envelope.command
        if isinstance(command, CancelRequest) and self._ports.requests.withdraw(command.request_id):
            self._ids.end(command.request_id)
            return CommandEffects(Applied())
        try:
            effects = self._core.apply_command(
                command, allow_destination_grant=allow_destination_grant, now_ms=now_ms
            )
        except MockerError as error:
            self._ids.unclaim(command)
            self._publisher.refuse(envelope, error)
            return None
        self._ids.settle(command, effects.result)
        return effects

    def _advance_during_pass(self, now_ms: float) -> None:
        self._engine_ms = now_ms
        effects = self._core.advance(now_ms, allow_destination_grant=False)
        self._publisher.hold_back(effects)

    def _cancel_outside_pass(self, now_ms: float) -> None:
        cancellations = self._ports.cancellations
        while cancellations:
            cancellation = cancellations.take()
            if isinstance(cancellation, CoreCall):
                self._publisher.publish_call(cancellation, now_ms)
                continue
            request_id = cancellation.request_id
            known = self._ports.requests.withdraw(request_id) or self._core.cancel(request_id, now_ms)
            if known:
                self._ids.end(request_id)
            self._publisher.publish_cancellation(cancellation, Applied() if known else Noop())
        self._publisher.publish_metrics()

    def _cancel_during_pass(self, now_ms: float) -> None:
        """Free at once; a request that ended in this very pass, unpublished so far, counts as cancelled."""
        cancellations = self._ports.cancellations
        while cancellations:
            cancellation = cancellations.take()
            if isinstance(cancellation, CoreCall):
                self._publisher.hold_back_call(cancellation, now_ms)
                continue
            request_id = cancellation.request_id
            if self._ids.is_accepted(request_id):
                if not self._ports.requests.withdraw(request_id):
                    self._core.cancel(request_id, now_ms)
                    self._publisher.suppress(request_id)
                self._ids.end(request_id)
                result: Applied | Noop = Applied()
            else:
                result = Noop()
            self._publisher.reply_cancellation(cancellation, result)


def _tick_at_ms(deadline_ms: float | None, now_ms: float) -> float | None:
    if deadline_ms is None or deadline_ms > now_ms:
        return deadline_ms
    return now_ms + DUE_DEADLINE_MS
