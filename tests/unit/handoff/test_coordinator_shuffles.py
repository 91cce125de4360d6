"""Random interleavings of two sides, a timer and trouble: nothing leaks, and the end is said once."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from mocker_core.events import DestinationReserved, SourceHeld
from mocker_core.handoff.coordinator import (
    AckOutcome,
    Cancelled,
    Failed,
    HandoffAction,
    HandoffCoordinator,
    HandoffFact,
    HandoffOutcome,
    HandoffSide,
    TimedOut,
    TransferCompleted,
)
from mocker_core.handoff.coordinator_table import ActionKind, HandoffOrder, HandoffState
from mocker_core.request import HandoffId, RequestId

H, R = HandoffId("h"), RequestId("r")
A = ActionKind
SOURCE_KINDS = {A.SUBMIT_PREFILL, A.RELEASE_SOURCE, A.CANCEL_SOURCE}


class Side:
    """A tiny ledger: what this side holds, with its commands taken in order."""

    def __init__(self) -> None:
        self.inbox: deque[ActionKind] = deque()
        self.holds = self.active = False

    def step(self, refuse: bool) -> tuple[ActionKind, AckOutcome, HandoffFact | None]:
        kind = self.inbox.popleft()
        if kind in (A.SUBMIT_PREFILL, A.RESERVE):
            if refuse:
                return kind, AckOutcome.REFUSED, None
            self.holds = True
            held = SourceHeld(H, R, 1.0, 10)
            return (
                kind,
                AckOutcome.APPLIED,
                held if kind is A.SUBMIT_PREFILL else DestinationReserved(H, R, 8),
            )
        if not self.holds and not self.active:
            return kind, AckOutcome.NOOP, None
        self.active = kind is A.ACTIVATE
        self.holds = False
        return kind, AckOutcome.APPLIED, None


class World:
    """Everything in flight between the coordinator and its two sides; the caller picks what happens next."""

    def __init__(self, order: HandoffOrder) -> None:
        self.machine = HandoffCoordinator(H, order)
        self.source, self.destination = Side(), Side()
        self.replies: list[tuple[ActionKind, AckOutcome]] = []
        self.facts: list[HandoffFact] = []
        self.ends: list[HandoffAction] = []
        self.carry_out(self.machine.start())

    def carry_out(self, actions: tuple[HandoffAction, ...]) -> None:
        for action in actions:
            if action.kind is A.COMPLETE:
                self.ends.append(action)
            elif action.kind is A.START_TRANSFER:
                self.replies.append((action.kind, AckOutcome.APPLIED))
                self.facts.append(TransferCompleted())
            else:
                side = self.source if action.kind in SOURCE_KINDS else self.destination
                side.inbox.append(action.kind)

    def moves(self) -> list[str]:
        ready = {"source": self.source.inbox, "destination": self.destination.inbox}
        moves = [name for name, inbox in ready.items() if inbox]
        return moves + (["reply"] if self.replies else []) + (["fact"] if self.facts else [])

    def move(
        self, name: str, pick: int, *, lose: bool = False, refuse: bool = False, twice: bool = False
    ) -> None:
        if name == "reply":
            kind, outcome = self.replies.pop(pick % len(self.replies))
            if lose and pick == 0:
                return  # not even the driver notices
            for _ in range(1 + twice):
                self.carry_out(self.machine.acknowledge(kind, AckOutcome.LOST if lose else outcome))
        elif name == "fact":
            fact = self.facts.pop(pick % len(self.facts))
            for _ in range(1 + twice):
                self.carry_out(() if lose else self.machine.observe(fact))
        else:
            kind, outcome, told = (self.source if name == "source" else self.destination).step(refuse)
            self.replies.append((kind, outcome))
            self.facts += [told] if told is not None else []

    def settle(self) -> None:
        """Let everything in flight arrive; where that is not the end, the session's timer ends it."""
        for _ in range(3):
            while moves := self.moves():
                self.move(moves[0], 0)
            if self.machine.state is HandoffState.DONE:
                return
            self.carry_out(self.machine.observe(TimedOut()))
        raise AssertionError(f"stuck in {self.machine.state}")


TROUBLE: list[HandoffFact] = [
    Cancelled(),
    TimedOut(),
    Failed(HandoffSide.SOURCE, "Gone."),
    Failed(HandoffSide.DESTINATION, "Gone."),
]
MOVE = st.tuples(
    st.integers(0, 7), *(st.integers(0, 5).map(lambda n: n == 0) for _ in range(4)), st.integers(0, 3)
)


@settings(max_examples=400)
@given(order=st.sampled_from(HandoffOrder), moves=st.lists(MOVE, max_size=30))
def test_any_interleaving_drains_both_sides_and_completes_once(
    order: HandoffOrder, moves: list[tuple[int, bool, bool, bool, bool, int]]
) -> None:
    world = World(order)
    for pick, lose, refuse, twice, trouble, which in moves:
        if trouble:
            world.carry_out(world.machine.observe(TROUBLE[which]))
        elif ready := world.moves():
            world.move(ready[pick % len(ready)], which, lose=lose, refuse=refuse, twice=twice)
    world.settle()
    assert len(world.ends) == 1
    assert not world.source.holds
    assert not world.destination.holds
    assert world.destination.active == (world.ends[0].outcome is HandoffOutcome.COMPLETED)
    assert world.ends[0].outcome is world.machine.outcome
