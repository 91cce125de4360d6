from __future__ import annotations

import io
from typing import Any

from app.route.demo_screen import Screen, lane_row, picture

NAMES = {"http://p": "prefill-1", "http://d": "decode-1"}


def lane(**values: Any) -> dict[str, Any]:
    return {
        "request_id": "0123456789",
        "state": "done",
        "prefill": "http://p",
        "decode": "http://d",
        "prefill_ms": 12.4,
        "first_byte_ms": 30.0,
        "elapsed_ms": 99.0,
        "events": 7,
        "error": None,
        **values,
    }


def answer(*lanes: dict[str, Any]) -> dict[str, Any]:
    return {"open": 0, "ended": {"done": len(lanes)}, "lanes": list(lanes)}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_row_says_from_where_to_where_and_how_long() -> None:
    row = lane_row(lane(), NAMES)
    for part in ("01234567", "prefill-1", "decode-1", "done", "12 ms", "30 ms", "99 ms", "7 events"):
        assert part in row


def test_row_of_a_lane_that_has_just_begun_has_no_times() -> None:
    row = lane_row(lane(state="prefill", decode=None, prefill_ms=None, first_byte_ms=None), NAMES)
    assert "prefill " in row
    assert "═" not in row


def test_row_of_a_failed_lane_says_why() -> None:
    assert lane_row(lane(state="failed", error="status 400"), NAMES).endswith("status 400")


def test_picture_is_cut_to_the_terminal_and_to_its_latest_lanes() -> None:
    rows = picture(answer(*(lane(request_id=str(n)) for n in range(50))), NAMES, 40)
    assert len(rows) < 20
    assert max(len(row) for row in rows) <= 39


def test_terminal_is_redrawn_in_place() -> None:
    out = Terminal()
    screen = Screen(out)
    screen.show(answer(lane(), lane()), NAMES)
    assert "\x1b[3A" not in out.getvalue()
    screen.show(answer(lane()), NAMES)
    assert out.getvalue().count("\x1b[3A") == 1


def test_elsewhere_each_ended_lane_is_told_once() -> None:
    out = io.StringIO()
    screen = Screen(out)
    for _ in range(3):
        screen.show(answer(lane(), lane(request_id="open", state="decode")), NAMES)
    assert out.getvalue().count("\n") == 1
    assert "\x1b" not in out.getvalue()
