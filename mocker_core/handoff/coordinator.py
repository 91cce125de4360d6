"""Runs one handoff as a sans-IO state machine: facts and acknowledgements in, actions out.

Owns what was issued, acknowledged and observed, and so what is due. Must not know clocks, HTTP
or schedulers: a driver carries its actions out. Contract for drivers: actions that concern one side
are carried out in the order in which they were given, and each is acknowledged once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from mocker_core.errors import HandoffProtocolError
from mocker_core.events import DestinationExpired, DestinationReserved, SourceExpired, SourceHeld
from mocker_core.handoff.coordinator_table import (
    TRANSITIONS,
    ActionKind,
    HandoffOrder,
    HandoffState,
    Trigger,
)
from mocker_core.handoff.timing import TransferTiming
from mocker_core.request import HandoffId


class HandoffSide(StrEnum):
    SOURCE = "source"
    DESTINATION = "destination"


class HandoffOutcome(StrEnum):
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"
    TIMED_OUT = "timed_out"


class AckOutcome(StrEnum):
    """REFUSED: certainly not done. LOST: nobody knows (it says nothing, so nothing contradicts it)."""

    APPLIED = "applied"
    NOOP = "noop"
    REFUSED = "refused"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class TransferCompleted:
    """The modelled transfer delay has passed."""


@dataclass(frozen=True, slots=True)
class Failed:
    """One side can't go on, for a `reason` that is a sentence."""

    side: HandoffSide
    reason: str


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The driver's session timer ran out (it does not run during the modelled transfer)."""

    reason: str = "The handoff timed out."


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Nobody wants the result any more."""

    reason: str = "The handoff was cancelled."


HandoffFact = (
    SourceHeld
    | DestinationReserved
    | TransferCompleted
    | Failed
    | SourceExpired
    | DestinationExpired
    | TimedOut
    | Cancelled
)


@dataclass(frozen=True, slots=True)
class HandoffAction:
    """Something that the driver does next. `delay_ms` (None: none) belongs to START_TRANSFER and counts
    from the fact that led to it; `outcome` and `reason` to COMPLETE, the last action of every handoff."""

    kind: ActionKind
    delay_ms: float | None = None
    outcome: HandoffOutcome | None = None
    reason: str = ""


Actions = tuple[HandoffAction, ...]

_CANCELS: Final = (ActionKind.CANCEL_SOURCE, ActionKind.CANCEL_DESTINATION)
# The action that each state waits for, and what it means if that action was lost on the way.
_FORWARD: Final = {
    ActionKind.SUBMIT_PREFILL: (HandoffState.PREFILLING, Trigger.SOURCE_FAILED),
    ActionKind.RESERVE: (HandoffState.RESERVING, Trigger.DESTINATION_FAILED),
    ActionKind.START_TRANSFER: (HandoffState.TRANSFERRING, Trigger.DESTINATION_FAILED),
    ActionKind.ACTIVATE: (HandoffState.ACTIVATING, Trigger.DESTINATION_FAILED),
    ActionKind.RELEASE_SOURCE: (HandoffState.RELEASING, Trigger.REFUSED),
}
# A fact of the right column proves that the action of the left one was done.
_CAUSE: Final = {
    Trigger.SOURCE_HELD: ActionKind.SUBMIT_PREFILL,
    Trigger.DESTINATION_RESERVED: ActionKind.RESERVE,
    Trigger.TRANSFER_COMPLETED: ActionKind.START_TRANSFER,
}
_OUTCOMES: Final = {
    Trigger.ACTIVATED: HandoffOutcome.COMPLETED,
    Trigger.CANCELLED: HandoffOutcome.CANCELLED,
    Trigger.TIMED_OUT: HandoffOutcome.TIMED_OUT,
}


class HandoffCoordinator:
    """One handoff from `start()` to its COMPLETE action, which is given exactly once."""

    def __init__(
        self,
        handoff_id: HandoffId,
        order: HandoffOrder = HandoffOrder.SOURCE_FIRST,
        timing: TransferTiming | None = None,
    ) -> None:
        self.handoff_id: Final = handoff_id
        self.order: Final = order
        self._timing = timing if timing is not None else TransferTiming()
        self._table = TRANSITIONS[order]
        self._state = HandoffState.NEW
        self._outcome: HandoffOutcome | None = None
        self._reason = ""
        self._issued: dict[ActionKind, HandoffAction] = {}
        self._acks: dict[ActionKind, AckOutcome] = {}
        self._facts: dict[Trigger, HandoffFact] = {}

    @property
    def state(self) -> HandoffState:
        return self._state

    @property
    def outcome(self) -> HandoffOutcome | None:
        """None until it is decided; decided for good only when `state` is DONE."""
        return self._outcome

    @property
    def reason(self) -> str:
        return self._reason

    def start(self) -> Actions:
        """The first action; nothing if it was started (or ended) already."""
        return self._advance(Trigger.START) if self._state is HandoffState.NEW else ()

    def observe(self, fact: HandoffFact) -> Actions:
        """Take a fact; a repeated equal one is ignored.

        Raises HandoffProtocolError for a fact about another handoff, about an action never
        given, or one that contradicts an earlier fact or acknowledgement.
        """
        match fact:
            case SourceHeld():
                return self._milestone(Trigger.SOURCE_HELD, fact)
            case DestinationReserved():
                return self._milestone(Trigger.DESTINATION_RESERVED, fact)
            case TransferCompleted():
                return self._milestone(Trigger.TRANSFER_COMPLETED, fact)
            case SourceExpired():
                self._check_id(fact.handoff_id)
                return self._advance(Trigger.SOURCE_FAILED, "The held source expired.")
            case DestinationExpired():
                self._check_id(fact.handoff_id)
                return self._advance(Trigger.DESTINATION_FAILED, "The destination expired.")
            case Failed(side=HandoffSide.SOURCE):
                return self._advance(Trigger.SOURCE_FAILED, fact.reason)
            case Failed():
                return self._advance(Trigger.DESTINATION_FAILED, fact.reason)
            case TimedOut():
                return self._advance(Trigger.TIMED_OUT, fact.reason)
            case Cancelled():
                return self._advance(Trigger.CANCELLED, fact.reason)

    def acknowledge(self, kind: ActionKind, outcome: AckOutcome, reason: str = "") -> Actions:
        """Take what became of an action; a repeated equal acknowledgement is ignored.

        Raises HandoffProtocolError if the action was never given or was acknowledged otherwise.
        """
        if kind not in self._issued:
            raise HandoffProtocolError(
                f"Handoff {self.handoff_id} was never told to {kind}: nothing to acknowledge."
            )
        earlier = self._acks.get(kind)
        if earlier is outcome or (earlier is not None and outcome is AckOutcome.LOST):
            return ()
        if earlier is not None and earlier is not AckOutcome.LOST:
            raise self._contradiction(f"{kind} was acknowledged as {earlier}, now as {outcome}")
        proof = next((trigger for trigger, cause in _CAUSE.items() if cause is kind), None)
        proven = proof is not None and proof in self._facts
        if proven and outcome not in (AckOutcome.APPLIED, AckOutcome.LOST):
            raise self._contradiction(f"{kind} was acknowledged as {outcome}, yet {proof} was seen")
        self._acks[kind] = outcome
        if kind in _CANCELS:
            return self._drained()
        # A definite word after a LOST one comes too late to change what was decided on it.
        if proven or earlier is AckOutcome.LOST or kind is ActionKind.COMPLETE:
            return ()
        return self._forward(kind, outcome, reason)

    def _forward(self, kind: ActionKind, outcome: AckOutcome, reason: str) -> Actions:
        state, if_lost = _FORWARD[kind]
        if self._state is not state:
            return ()
        if outcome is AckOutcome.APPLIED:
            if kind is ActionKind.ACTIVATE:
                return self._advance(Trigger.ACTIVATED)
            return self._advance(Trigger.RELEASED) if kind is ActionKind.RELEASE_SOURCE else ()
        if outcome is AckOutcome.NOOP and kind is ActionKind.RELEASE_SOURCE:
            return self._advance(Trigger.RELEASED)
        trigger = if_lost if outcome is AckOutcome.LOST else Trigger.REFUSED
        return self._advance(trigger, reason or f"The {kind} was {outcome}.")

    def _milestone(
        self, trigger: Trigger, fact: SourceHeld | DestinationReserved | TransferCompleted
    ) -> Actions:
        if not isinstance(fact, TransferCompleted):
            self._check_id(fact.handoff_id)
        cause = _CAUSE[trigger]
        if cause not in self._issued:
            raise self._contradiction(f"{trigger} was seen before {cause} was asked for")
        earlier = self._facts.get(trigger)
        if earlier == fact:
            return ()
        if earlier is not None:
            raise self._contradiction(f"{trigger} was seen as {earlier}, now as {fact}")
        if self._acks.get(cause) in (AckOutcome.NOOP, AckOutcome.REFUSED):
            raise self._contradiction(
                f"{trigger} was seen, yet {cause} was acknowledged as {self._acks[cause]}"
            )
        self._facts[trigger] = fact
        return self._advance(trigger)

    def _advance(self, trigger: Trigger, reason: str = "") -> Actions:
        """Follow the table; a trigger without a row here comes too late to matter."""
        step = self._table.get((self._state, trigger))
        if step is None:
            return ()
        if step.settles:
            self._outcome = _OUTCOMES.get(trigger, HandoffOutcome.FAILED)
            self._reason = reason
        self._state = step.next_state
        actions = tuple(self._action(kind) for kind in step.actions)
        self._issued.update((action.kind, action) for action in actions)
        return actions

    def _action(self, kind: ActionKind) -> HandoffAction:
        if kind is ActionKind.START_TRANSFER:
            return HandoffAction(kind, delay_ms=self._delay_ms())
        if kind is ActionKind.COMPLETE:
            return HandoffAction(kind, outcome=self._outcome, reason=self._reason)
        return HandoffAction(kind)

    def _delay_ms(self) -> float | None:
        held, reserved = self._facts[Trigger.SOURCE_HELD], self._facts[Trigger.DESTINATION_RESERVED]
        assert isinstance(held, SourceHeld) and isinstance(reserved, DestinationReserved)
        return self._timing.handoff_delay_ms(
            prompt_tokens=held.prompt_tokens,
            transferable_prompt_tokens=reserved.transferable_prompt_tokens,
            source_delay_ms=held.transfer_delay_ms,
        )

    def _drained(self) -> Actions:
        due = [kind for kind in _CANCELS if kind in self._issued]
        return self._advance(Trigger.DRAINED) if all(kind in self._acks for kind in due) else ()

    def _check_id(self, handoff_id: HandoffId) -> None:
        if handoff_id != self.handoff_id:
            raise HandoffProtocolError(
                f"A fact about handoff {handoff_id} was given to the coordinator of {self.handoff_id}."
            )

    def _contradiction(self, what: str) -> HandoffProtocolError:
        return HandoffProtocolError(f"Handoff {self.handoff_id} contradicts itself: {what}.")
