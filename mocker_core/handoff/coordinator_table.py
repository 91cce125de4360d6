"""Every transition of a handoff, as data; docs/handoff.md's diagrams are drawn from it.

Owns states, triggers, action kinds and what each (state, trigger) does in either order. Knows
nothing of ids, acknowledgement bookkeeping or delays: that is `coordinator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class HandoffOrder(StrEnum):
    SOURCE_FIRST = "source_first"
    DESTINATION_FIRST = "destination_first"


class HandoffState(StrEnum):
    NEW = "new"
    PREFILLING = "prefilling"
    RESERVING = "reserving"
    TRANSFERRING = "transferring"
    ACTIVATING = "activating"
    RELEASING = "releasing"
    DRAINING = "draining"
    DONE = "done"


class Trigger(StrEnum):
    """What moves a handoff on. `refused`: this state's action certainly did not happen."""

    START = "start"
    SOURCE_HELD = "source held"
    DESTINATION_RESERVED = "destination reserved"
    TRANSFER_COMPLETED = "transfer completed"
    ACTIVATED = "activated"
    RELEASED = "released"
    REFUSED = "refused"
    SOURCE_FAILED = "source failed"
    DESTINATION_FAILED = "destination failed"
    TIMED_OUT = "timed out"
    CANCELLED = "cancelled"
    DRAINED = "drained"


class ActionKind(StrEnum):
    SUBMIT_PREFILL = "submit prefill"
    RESERVE = "reserve"
    START_TRANSFER = "start transfer"
    ACTIVATE = "activate"
    RELEASE_SOURCE = "release source"
    CANCEL_SOURCE = "cancel source"
    CANCEL_DESTINATION = "cancel destination"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Step:
    """What one (state, trigger) does. `settles`: the handoff's outcome is decided here."""

    actions: tuple[ActionKind, ...]
    next_state: HandoffState
    settles: bool = False


TransitionTable = Mapping[tuple[HandoffState, Trigger], Step]

_S, _T, _A = HandoffState, Trigger, ActionKind
_FAILURES = (_T.SOURCE_FAILED, _T.DESTINATION_FAILED, _T.TIMED_OUT, _T.CANCELLED)
_BOTH = (_A.CANCEL_DESTINATION, _A.CANCEL_SOURCE)


def _fail(
    state: HandoffState, triggers: Iterable[Trigger], *due: ActionKind
) -> dict[tuple[HandoffState, Trigger], Step]:
    """Rows of a failure: the cancels that are due, or the end at once where none is."""
    step = Step(due, _S.DRAINING, True) if due else Step((_A.COMPLETE,), _S.DONE, True)
    return {(state, trigger): step for trigger in triggers}


_COMMON: TransitionTable = {
    **_fail(_S.NEW, _FAILURES),
    (_S.TRANSFERRING, _T.TRANSFER_COMPLETED): Step((_A.ACTIVATE,), _S.ACTIVATING),
    **_fail(_S.TRANSFERRING, (_T.REFUSED, *_FAILURES), *_BOTH),
    (_S.ACTIVATING, _T.ACTIVATED): Step((_A.RELEASE_SOURCE,), _S.RELEASING, settles=True),
    **_fail(_S.ACTIVATING, (_T.REFUSED, *_FAILURES), *_BOTH),
    (_S.RELEASING, _T.RELEASED): Step((_A.COMPLETE,), _S.DONE),
    # The destination has its KV: trouble at the source no longer harms the request.
    (_S.RELEASING, _T.REFUSED): Step((_A.CANCEL_SOURCE,), _S.DRAINING),
    (_S.RELEASING, _T.SOURCE_FAILED): Step((_A.CANCEL_SOURCE,), _S.DRAINING),
    (_S.RELEASING, _T.TIMED_OUT): Step((_A.CANCEL_SOURCE,), _S.DRAINING),
    # The release may be lost, so the source is cancelled too (a noop where it was released).
    **_fail(_S.RELEASING, (_T.DESTINATION_FAILED, _T.CANCELLED), *_BOTH),
    (_S.DRAINING, _T.DRAINED): Step((_A.COMPLETE,), _S.DONE),
    # Nobody confirms the cancels: waiting on would help no one, each side's own timeout does the rest.
    (_S.DRAINING, _T.TIMED_OUT): Step((_A.COMPLETE,), _S.DONE),
}

_SOURCE_FIRST: TransitionTable = {
    (_S.NEW, _T.START): Step((_A.SUBMIT_PREFILL,), _S.PREFILLING),
    (_S.PREFILLING, _T.SOURCE_HELD): Step((_A.RESERVE,), _S.RESERVING),
    **_fail(_S.PREFILLING, (_T.REFUSED,)),
    **_fail(_S.PREFILLING, _FAILURES, _A.CANCEL_SOURCE),
    (_S.RESERVING, _T.DESTINATION_RESERVED): Step((_A.START_TRANSFER,), _S.TRANSFERRING),
    **_fail(_S.RESERVING, (_T.REFUSED,), _A.CANCEL_SOURCE),
    **_fail(_S.RESERVING, _FAILURES, *_BOTH),
}

_DESTINATION_FIRST: TransitionTable = {
    (_S.NEW, _T.START): Step((_A.RESERVE,), _S.RESERVING),
    (_S.RESERVING, _T.DESTINATION_RESERVED): Step((_A.SUBMIT_PREFILL,), _S.PREFILLING),
    **_fail(_S.RESERVING, (_T.REFUSED,)),
    **_fail(_S.RESERVING, _FAILURES, _A.CANCEL_DESTINATION),
    (_S.PREFILLING, _T.SOURCE_HELD): Step((_A.START_TRANSFER,), _S.TRANSFERRING),
    **_fail(_S.PREFILLING, (_T.REFUSED,), _A.CANCEL_DESTINATION),
    **_fail(_S.PREFILLING, _FAILURES, *_BOTH),
}

TRANSITIONS: Mapping[HandoffOrder, TransitionTable] = {
    HandoffOrder.SOURCE_FIRST: {**_SOURCE_FIRST, **_COMMON},
    HandoffOrder.DESTINATION_FIRST: {**_DESTINATION_FIRST, **_COMMON},
}
