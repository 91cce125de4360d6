from __future__ import annotations

from app.route.lanes import LaneBook, LaneState


def test_lane_shows_how_long_it_took() -> None:
    now = [10.0]
    book = LaneBook(now_s=lambda: now[0])
    lane = book.open("r1")
    now[0] = 10.5
    assert book.as_json()["lanes"][0]["elapsed_ms"] == 500.0
    book.close(lane, LaneState.DONE)
    now[0] = 99.0
    shown = book.as_json()
    assert (shown["open"], shown["ended"]["done"]) == (0, 1)
    assert shown["lanes"][0]["elapsed_ms"] == 500.0


def test_second_close_is_ignored() -> None:
    book = LaneBook()
    lane = book.open("r1")
    book.close(lane, LaneState.DONE)
    book.close(lane, LaneState.CANCELLED, "late")
    assert book.as_json()["ended"] == {"done": 1, "failed": 0, "cancelled": 0}
    assert (lane.state, lane.error) == (LaneState.DONE, None)


def test_only_the_latest_ended_lanes_are_kept() -> None:
    book = LaneBook(keep=2)
    for name in "abc":
        book.close(book.open(name), LaneState.DONE)
    assert [lane["request_id"] for lane in book.as_json()["lanes"]] == ["c", "b"]
    assert book.as_json()["ended"]["done"] == 3
