from __future__ import annotations

import pytest

from mocker_core.engine_args import KvTransferTimingMode
from mocker_core.errors import HandoffProtocolError
from mocker_core.events import DestinationExpired, DestinationReserved, SourceExpired, SourceHeld
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
from mocker_core.handoff.timing import TransferTiming
from mocker_core.request import HandoffId, RequestId

H, R = HandoffId("h1"), RequestId("r1")
HELD = SourceHeld(H, R, 2.5, 100)
RESERVED = DestinationReserved(H, R, 64)
A = ActionKind
APPLIED, NOOP, REFUSED, LOST = AckOutcome

# What is fed, in order, to take a handoff from start to its end without trouble.
Feed = HandoffFact | tuple[ActionKind, AckOutcome]
HAPPY: dict[HandoffOrder, list[Feed]] = {
    HandoffOrder.SOURCE_FIRST: [
        (A.SUBMIT_PREFILL, APPLIED),
        HELD,
        (A.RESERVE, APPLIED),
        RESERVED,
        (A.START_TRANSFER, APPLIED),
        TransferCompleted(),
        (A.ACTIVATE, APPLIED),
        (A.RELEASE_SOURCE, APPLIED),
    ],
    HandoffOrder.DESTINATION_FIRST: [
        (A.RESERVE, APPLIED),
        RESERVED,
        (A.SUBMIT_PREFILL, APPLIED),
        HELD,
        (A.START_TRANSFER, APPLIED),
        TransferCompleted(),
        (A.ACTIVATE, APPLIED),
        (A.RELEASE_SOURCE, APPLIED),
    ],
}
STEPS = [(order, n) for order in HandoffOrder for n in range(len(HAPPY[order]))]


class Run:
    """A coordinator and every action that it has given."""

    def __init__(self, order: HandoffOrder, timing: TransferTiming | None = None) -> None:
        self.machine = HandoffCoordinator(H, order, timing)
        self.given: list[HandoffAction] = list(self.machine.start())

    def feed(self, item: Feed) -> list[ActionKind]:
        if isinstance(item, tuple):
            new = self.machine.acknowledge(*item)
        else:
            new = self.machine.observe(item)
        self.given += new
        return [action.kind for action in new]

    def upto(self, n: int) -> Run:
        for item in HAPPY[self.machine.order][:n]:
            self.feed(item)
        return self

    @property
    def kinds(self) -> list[ActionKind]:
        return [action.kind for action in self.given]

    def drain(self) -> HandoffAction:
        """Acknowledge the cancels that were given; the handoff must then be done, and say so once."""
        for kind in (A.CANCEL_DESTINATION, A.CANCEL_SOURCE):
            if kind in self.kinds:
                self.feed((kind, APPLIED))
        assert self.machine.state is HandoffState.DONE
        assert self.kinds.count(A.COMPLETE) == 1 and self.kinds[-1] is A.COMPLETE
        return self.given[-1]


def test_source_first_gives_its_actions_in_vllm_order() -> None:
    run = Run(HandoffOrder.SOURCE_FIRST).upto(99)
    assert run.kinds == [
        A.SUBMIT_PREFILL, A.RESERVE, A.START_TRANSFER, A.ACTIVATE, A.RELEASE_SOURCE, A.COMPLETE,
    ]  # fmt: skip
    assert run.given[-1].outcome is HandoffOutcome.COMPLETED


def test_destination_first_reserves_before_the_prefill() -> None:
    run = Run(HandoffOrder.DESTINATION_FIRST).upto(99)
    assert run.kinds == [
        A.RESERVE, A.SUBMIT_PREFILL, A.START_TRANSFER, A.ACTIVATE, A.RELEASE_SOURCE, A.COMPLETE,
    ]  # fmt: skip
    assert run.given[-1].outcome is HandoffOutcome.COMPLETED


@pytest.mark.parametrize("order", HandoffOrder)
def test_transfer_carries_the_delay_of_the_source(order: HandoffOrder) -> None:
    run = Run(order).upto(4)
    assert run.given[2] == HandoffAction(A.START_TRANSFER, delay_ms=2.5)


def test_transfer_of_missing_blocks_carries_their_delay() -> None:
    timing = TransferTiming(1_000_000, 1.0, KvTransferTimingMode.DESTINATION_MISSING)
    run = Run(HandoffOrder.SOURCE_FIRST, timing).upto(4)
    assert run.given[2].delay_ms == pytest.approx(64.0)


@pytest.mark.parametrize("order", HandoffOrder)
def test_acknowledgements_after_the_facts_they_belong_to_change_nothing(order: HandoffOrder) -> None:
    run = Run(order)
    facts = [item for item in HAPPY[order] if not isinstance(item, tuple)]
    late = [item for item in HAPPY[order] if isinstance(item, tuple)]
    for fact in facts:
        run.feed(fact)
    for ack in late[:3]:
        assert run.feed(ack) == []
    assert run.feed((A.ACTIVATE, APPLIED)) == [A.RELEASE_SOURCE]
    assert run.feed((A.RELEASE_SOURCE, NOOP)) == [A.COMPLETE]


@pytest.mark.parametrize(("order", "n"), STEPS)
def test_repeated_equal_input_is_ignored(order: HandoffOrder, n: int) -> None:
    run = Run(order).upto(n + 1)
    before = list(run.given)
    for item in HAPPY[order][: n + 1]:
        assert run.feed(item) == []
    assert run.machine.start() == ()
    assert run.given == before


@pytest.mark.parametrize(("order", "n"), STEPS)
def test_conflicting_input_is_an_error_and_moves_nothing(order: HandoffOrder, n: int) -> None:
    run = Run(order).upto(n + 1)
    item = HAPPY[order][n]
    conflicting: Feed
    match item:
        case SourceHeld():
            conflicting = SourceHeld(H, R, 9.0, 100)
        case DestinationReserved():
            conflicting = DestinationReserved(H, R, 0)
        case (kind, _):
            conflicting = (kind, REFUSED)
        case _:
            conflicting = (A.START_TRANSFER, NOOP)
    state, given = run.machine.state, list(run.given)
    with pytest.raises(HandoffProtocolError, match="contradicts itself"):
        run.feed(conflicting)
    assert (run.machine.state, run.given) == (state, given)


def test_refusal_after_its_proof_is_an_error() -> None:
    run = Run(HandoffOrder.SOURCE_FIRST)
    run.feed(HELD)
    with pytest.raises(HandoffProtocolError, match="source held was seen"):
        run.feed((A.SUBMIT_PREFILL, REFUSED))


def test_proof_after_a_refusal_is_an_error() -> None:
    run = Run(HandoffOrder.SOURCE_FIRST)
    run.feed((A.SUBMIT_PREFILL, REFUSED))
    with pytest.raises(HandoffProtocolError, match="was acknowledged as refused"):
        run.feed(HELD)


@pytest.mark.parametrize("order", HandoffOrder)
@pytest.mark.parametrize("fact", [RESERVED, TransferCompleted(), HELD])
def test_fact_before_its_action_is_an_error(order: HandoffOrder, fact: HandoffFact) -> None:
    run = Run(order)
    first = HELD if order is HandoffOrder.SOURCE_FIRST else RESERVED
    if fact == first:
        run = Run.__new__(Run)
        run.machine, run.given = HandoffCoordinator(H, order), []
    with pytest.raises(HandoffProtocolError, match="before"):
        run.feed(fact)


def test_acknowledging_what_was_never_given_is_an_error() -> None:
    with pytest.raises(HandoffProtocolError, match="never told to activate"):
        Run(HandoffOrder.SOURCE_FIRST).feed((A.ACTIVATE, APPLIED))


@pytest.mark.parametrize(
    "fact",
    [
        SourceHeld(HandoffId("other"), R, None, 1),
        SourceExpired(HandoffId("other"), R),
        DestinationExpired(HandoffId("other"), R),
    ],
)
def test_fact_of_another_handoff_is_an_error(fact: HandoffFact) -> None:
    with pytest.raises(HandoffProtocolError, match="other"):
        Run(HandoffOrder.SOURCE_FIRST).feed(fact)


TROUBLE: list[tuple[HandoffFact, HandoffOutcome]] = [
    (Cancelled(), HandoffOutcome.CANCELLED),
    (TimedOut(), HandoffOutcome.TIMED_OUT),
    (Failed(HandoffSide.SOURCE, "It broke."), HandoffOutcome.FAILED),
    (Failed(HandoffSide.DESTINATION, "It broke."), HandoffOutcome.FAILED),
    (SourceExpired(H, R), HandoffOutcome.FAILED),
    (DestinationExpired(H, R), HandoffOutcome.FAILED),
]


def engaged(run: Run) -> set[ActionKind]:
    """The cancels that are due for what was asked of either side so far."""
    due = set()
    if A.SUBMIT_PREFILL in run.kinds:
        due.add(A.CANCEL_SOURCE)
    if A.RESERVE in run.kinds:
        due.add(A.CANCEL_DESTINATION)
    return due


@pytest.mark.parametrize(("fact", "outcome"), TROUBLE)
@pytest.mark.parametrize(("order", "n"), [(order, n) for order, n in STEPS if n < 7])
def test_trouble_before_activation_cancels_each_side_that_was_asked(
    order: HandoffOrder, n: int, fact: HandoffFact, outcome: HandoffOutcome
) -> None:
    run = Run(order).upto(n)
    due = engaged(run)
    assert set(run.feed(fact)) == due
    end = run.drain()
    assert end.outcome is outcome
    assert end.reason


@pytest.mark.parametrize("order", HandoffOrder)
@pytest.mark.parametrize(
    ("fact", "outcome", "cancels"),
    [
        (Cancelled(), HandoffOutcome.CANCELLED, {A.CANCEL_SOURCE, A.CANCEL_DESTINATION}),
        (DestinationExpired(H, R), HandoffOutcome.FAILED, {A.CANCEL_SOURCE, A.CANCEL_DESTINATION}),
        (SourceExpired(H, R), HandoffOutcome.COMPLETED, {A.CANCEL_SOURCE}),
        (TimedOut(), HandoffOutcome.COMPLETED, {A.CANCEL_SOURCE}),
    ],
)
def test_trouble_after_activation_spares_a_request_that_has_its_kv(
    order: HandoffOrder, fact: HandoffFact, outcome: HandoffOutcome, cancels: set[ActionKind]
) -> None:
    run = Run(order).upto(7)
    assert set(run.feed(fact)) == cancels
    assert run.drain().outcome is outcome


@pytest.mark.parametrize("order", HandoffOrder)
def test_cancel_before_the_start_ends_at_once_with_nothing_due(order: HandoffOrder) -> None:
    machine = HandoffCoordinator(H, order)
    (end,) = machine.observe(Cancelled())
    assert (end.kind, end.outcome) == (A.COMPLETE, HandoffOutcome.CANCELLED)
    assert machine.start() == ()


@pytest.mark.parametrize("order", HandoffOrder)
@pytest.mark.parametrize("outcome", [REFUSED, NOOP])
@pytest.mark.parametrize("kind", [A.SUBMIT_PREFILL, A.RESERVE])
def test_refused_side_is_not_cancelled(order: HandoffOrder, outcome: AckOutcome, kind: ActionKind) -> None:
    n = HAPPY[order].index((kind, APPLIED))
    run = Run(order).upto(n)
    refused = A.CANCEL_SOURCE if kind is A.SUBMIT_PREFILL else A.CANCEL_DESTINATION
    due = engaged(run) - {refused}
    assert set(run.feed((kind, outcome))) - {A.COMPLETE} == due
    assert run.drain().outcome is HandoffOutcome.FAILED


@pytest.mark.parametrize("order", HandoffOrder)
@pytest.mark.parametrize("kind", [A.SUBMIT_PREFILL, A.RESERVE, A.START_TRANSFER, A.ACTIVATE])
def test_lost_acknowledgement_cancels_the_side_that_may_have_done_it(
    order: HandoffOrder, kind: ActionKind
) -> None:
    n = HAPPY[order].index((kind, APPLIED))
    run = Run(order).upto(n)
    due = engaged(run)
    assert set(run.feed((kind, LOST))) == due
    assert run.feed((kind, APPLIED)) == []  # found after all, too late to matter
    assert run.feed((kind, LOST)) == []
    assert run.drain().outcome is HandoffOutcome.FAILED


@pytest.mark.parametrize("order", HandoffOrder)
@pytest.mark.parametrize("outcome", [REFUSED, LOST])
def test_failed_release_is_followed_by_a_cancel_and_still_completes(
    order: HandoffOrder, outcome: AckOutcome
) -> None:
    run = Run(order).upto(7)
    assert run.feed((A.RELEASE_SOURCE, outcome)) == [A.CANCEL_SOURCE]
    assert run.drain().outcome is HandoffOutcome.COMPLETED


@pytest.mark.parametrize("order", HandoffOrder)
def test_activation_of_a_destination_that_is_gone_fails(order: HandoffOrder) -> None:
    run = Run(order).upto(6)
    assert set(run.feed((A.ACTIVATE, NOOP))) == {A.CANCEL_DESTINATION, A.CANCEL_SOURCE}
    assert run.drain().outcome is HandoffOutcome.FAILED


@pytest.mark.parametrize("order", HandoffOrder)
def test_cancels_that_nobody_confirms_end_with_the_timeout(order: HandoffOrder) -> None:
    run = Run(order).upto(5)
    run.feed(Cancelled())
    assert run.feed((A.CANCEL_SOURCE, LOST)) == []
    assert run.feed(Cancelled()) == []
    assert run.feed(TimedOut()) == [A.COMPLETE]
    assert run.feed((A.CANCEL_DESTINATION, APPLIED)) == []
    assert run.drain().outcome is HandoffOutcome.CANCELLED


@pytest.mark.parametrize("order", HandoffOrder)
def test_facts_that_come_while_draining_are_ignored(order: HandoffOrder) -> None:
    run = Run(order).upto(5)
    run.feed(Cancelled())
    assert run.feed(TransferCompleted()) == []
    assert run.feed(Failed(HandoffSide.SOURCE, "Late.")) == []
    assert run.drain().reason == "The handoff was cancelled."


@pytest.mark.parametrize("order", HandoffOrder)
def test_anything_after_the_end_gives_no_action(order: HandoffOrder) -> None:
    run = Run(order).upto(99)
    for fact, _ in TROUBLE:
        assert run.feed(fact) == []
    assert run.feed((A.COMPLETE, APPLIED)) == []
    assert run.kinds.count(A.COMPLETE) == 1
