from __future__ import annotations

from typing import Any

import pytest

from mocker_core.engine.arrivals import Arrivals
from mocker_core.errors import ArgumentError
from mocker_core.trace import TraceRow


def rows(*fields: dict[str, Any]) -> list[TraceRow]:
    return [
        TraceRow(index, row.get("at", 0.0), 1, 1, (), row.get("session"), row.get("delay", 0.0))
        for index, row in enumerate(fields)
    ]


def test_time_zero_is_the_smallest_timestamp_and_ties_go_in_file_order() -> None:
    arrivals = Arrivals(rows({"at": 70.0}, {"at": 50.0}, {"at": 50.0}))
    assert arrivals.take(0.0) == [(0.0, 1), (0.0, 2)]
    assert arrivals.next_ms() == 20.0
    assert arrivals.take(19.9) == []
    assert arrivals.take(20.0) == [(20.0, 0)]
    assert arrivals.next_ms() is None


def test_arrival_a_rounding_error_after_now_is_due() -> None:
    arrivals = Arrivals(rows({"at": 0.0}, {"at": 10.0}))
    arrivals.take(0.0)
    assert arrivals.take(10.0 - 1e-10) == [(10.0, 1)]


def test_later_turn_of_a_session_comes_a_delay_after_the_end_of_the_one_before() -> None:
    arrivals = Arrivals(rows({"session": "s"}, {"session": "s", "delay": 7.0, "at": 1.0}, {"session": "t"}))
    assert arrivals.take(0.0) == [(0.0, 0), (0.0, 2)]
    assert arrivals.next_ms() is None
    arrivals.ended(0, 100.0)
    assert arrivals.next_ms() == 107.0
    assert arrivals.take(107.0) == [(107.0, 1)]


def test_timestamp_of_a_later_turn_does_not_move_time_zero() -> None:
    arrivals = Arrivals(rows({"session": "s", "at": 50.0}, {"session": "s", "at": 10.0}, {"at": 60.0}))
    assert arrivals.take(0.0) == [(0.0, 0)]
    assert arrivals.next_ms() == 10.0


def test_closed_loop_dispatches_when_a_place_is_free_and_counts_the_arrival_then() -> None:
    arrivals = Arrivals(rows(*[{"at": 1000.0 * index} for index in range(4)]), concurrency=2)
    assert arrivals.take(0.0) == [(0.0, 0), (0.0, 1)]
    assert arrivals.next_ms() is None
    arrivals.ended(1, 30.0)
    assert arrivals.take(30.0) == [(30.0, 2)]
    arrivals.ended(0, 40.0)
    arrivals.ended(2, 45.0)
    assert arrivals.take(45.0) == [(45.0, 3)]


@pytest.mark.parametrize("concurrency", [0, -1])
def test_closed_loop_of_nobody_is_refused(concurrency: int) -> None:
    with pytest.raises(ArgumentError, match=f"concurrency is {concurrency}; it must be >= 1"):
        Arrivals(rows({}), concurrency=concurrency)


def test_empty_trace_has_no_arrival() -> None:
    assert Arrivals([]).next_ms() is None
