from __future__ import annotations

from pathlib import Path

import pytest

from mocker_core.handoff.coordinator_table import (
    TRANSITIONS,
    ActionKind,
    HandoffOrder,
    HandoffState,
    Trigger,
)
from mocker_core.handoff.diagram import mermaid, with_diagrams

FAILURES = (Trigger.SOURCE_FAILED, Trigger.DESTINATION_FAILED, Trigger.TIMED_OUT, Trigger.CANCELLED)


@pytest.mark.parametrize("order", HandoffOrder)
def test_every_state_but_the_last_two_answers_every_failure(order: HandoffOrder) -> None:
    for state in HandoffState:
        if state not in (HandoffState.DRAINING, HandoffState.DONE):
            assert all((state, trigger) in TRANSITIONS[order] for trigger in FAILURES), state


@pytest.mark.parametrize("order", HandoffOrder)
def test_every_state_is_reached_and_leads_to_done(order: HandoffOrder) -> None:
    table = TRANSITIONS[order]
    leads = {
        state: {step.next_state for (origin, _), step in table.items() if origin is state}
        for state in HandoffState
    }
    reached = {HandoffState.NEW}
    while more := {following for state in reached for following in leads[state]} - reached:
        reached |= more
    assert reached == set(HandoffState)
    ends = {HandoffState.DONE}
    while more := {state for state in HandoffState if leads[state] & ends} - ends:
        ends |= more
    assert ends == set(HandoffState)
    assert leads[HandoffState.DONE] == set()


@pytest.mark.parametrize("order", HandoffOrder)
def test_complete_is_given_exactly_on_the_way_to_done(order: HandoffOrder) -> None:
    for step in TRANSITIONS[order].values():
        assert (ActionKind.COMPLETE in step.actions) == (step.next_state is HandoffState.DONE)


@pytest.mark.parametrize("order", HandoffOrder)
def test_diagram_shows_every_transition(order: HandoffOrder) -> None:
    lines = mermaid(order).splitlines()
    for (state, trigger), step in TRANSITIONS[order].items():
        arrow = f"    {state} --> {step.next_state}: "
        assert any(line.startswith(arrow) and trigger in line for line in lines), (state, trigger)


def test_diagrams_in_the_docs_are_those_of_the_table() -> None:
    text = (Path(__file__).parents[3] / "docs" / "handoff.md").read_text(encoding="utf-8")
    assert with_diagrams(text) == text, "run: python -m mocker_core.handoff.diagram docs/handoff.md"


def test_text_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="needs exactly one"):
        with_diagrams("no marks here")
