from __future__ import annotations

from app.pd.book import HandoffBook, HandoffRecord
from mocker_core.events import DestinationExpired, DestinationReserved, SourceHeld
from mocker_core.request import HandoffId, RequestId

R = RequestId("r")


def record(name: str, run_by: str = "commands") -> HandoffRecord:
    return HandoffRecord(handoff_id=HandoffId(name), request_id=R, run_by=run_by)


def test_lifecycle_events_become_the_timeline_of_a_commanded_handoff() -> None:
    now = [5.0]
    book = HandoffBook(lambda: now[0])
    opened = book.open(record("a"))
    now[0] = 7.0
    book.on_lifecycle(1, SourceHeld(HandoffId("a"), R, 2.5, 9))
    assert opened.timeline == [(7.0, "source held")]
    assert opened.source == {"dp_rank": 1, "transfer_delay_ms": 2.5, "prompt_tokens": 9}
    assert (opened.state, opened.created_ms) == ("held", 5.0)


def test_coordinated_handoff_keeps_its_own_words() -> None:
    book = HandoffBook(lambda: 0.0)
    opened = book.open(record("a", "coordinator"))
    book.on_lifecycle(0, DestinationReserved(HandoffId("a"), R, 64))
    assert opened.timeline == []
    assert opened.destination == {"dp_rank": 0, "transferable_prompt_tokens": 64}


def test_expiry_closes_a_commanded_handoff() -> None:
    book = HandoffBook(lambda: 0.0)
    opened = book.open(record("a"))
    book.on_lifecycle(0, DestinationExpired(HandoffId("a"), R))
    assert (opened.outcome, book.find_open("a")) == ("expired", None)


def test_unknown_event_is_ignored() -> None:
    HandoffBook(lambda: 0.0).on_lifecycle(0, SourceHeld(HandoffId("x"), R, None, 1))


def test_open_ones_come_first_and_ended_ones_are_bounded() -> None:
    book = HandoffBook(lambda: 0.0, keep=2)
    for name in "abcd":
        book.open(record(name))
    for name in "abc":
        found = book.find_open(name)
        assert found is not None
        book.close(found, "done")
    assert [item.handoff_id for item in book.all()] == ["d", "c", "b"]
    assert book.find("a") is None


def test_second_close_is_ignored() -> None:
    book = HandoffBook(lambda: 0.0)
    opened = book.open(record("a"))
    book.close(opened, "released")
    book.close(opened, "failed", "late")
    assert (opened.outcome, opened.reason) == ("released", "")


def test_id_may_be_used_again_after_its_end() -> None:
    book = HandoffBook(lambda: 0.0)
    first = book.open(record("a"))
    book.close(first, "done")
    second = book.open(record("a"))
    assert book.find("a") is second
    assert len(book.all()) == 1
