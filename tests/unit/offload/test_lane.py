"""A link's transfers share its bandwidth equally, recomputed at every start, end and cancel."""

from __future__ import annotations

from typing import Any

import pytest

from mocker_core.offload.lane import Lane

MEGABYTE = 1_000_000  # one ms alone on a link of 1 GB/s


def ends(lane: Lane[str], now_ms: float) -> list[str]:
    return [transfer.job for transfer in lane.tick(now_ms)]


def all_ends(lane: Lane[str]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    while (deadline_ms := lane.next_deadline_ms()) is not None:
        found += [(job, pytest.approx(deadline_ms)) for job in ends(lane, deadline_ms)]
    return found


def test_one_transfer_has_the_whole_link() -> None:
    lane: Lane[str] = Lane(2.0)
    lane.start("a", 3 * MEGABYTE, 10.0)
    assert lane.next_deadline_ms() == pytest.approx(11.5)
    assert ends(lane, 11.4) == []
    assert ends(lane, 11.5) == ["a"]
    assert lane.next_deadline_ms() is None
    assert (lane.active, lane.bytes_total) == (0, 3 * MEGABYTE)


def test_two_transfers_have_half_the_link_each() -> None:
    lane: Lane[str] = Lane(1.0)
    lane.start("a", MEGABYTE, 0.0)
    lane.start("b", MEGABYTE, 0.0)
    assert ends(lane, 1.99) == []
    assert ends(lane, 2.0) == ["a", "b"]


def test_later_start_slows_the_earlier_and_an_end_speeds_up_the_rest() -> None:
    lane: Lane[str] = Lane(1.0)
    lane.start("a", MEGABYTE, 0.0)
    lane.start("b", MEGABYTE, 0.5)
    # a has 0.5 MB left at half speed: 1.5. Then b has 0.5 MB left alone: 2.0.
    assert all_ends(lane) == [("a", 1.5), ("b", 2.0)]


def test_small_transfer_overtakes_a_large_one() -> None:
    lane: Lane[str] = Lane(1.0)
    lane.start("large", 10 * MEGABYTE, 0.0)
    lane.start("small", MEGABYTE, 1.0)
    assert all_ends(lane) == [("small", 3.0), ("large", 11.0)]


def test_cancel_gives_its_share_to_the_others() -> None:
    lane: Lane[str] = Lane(1.0)
    lane.start("a", 2 * MEGABYTE, 0.0)
    b = lane.start("b", 2 * MEGABYTE, 0.0)
    lane.cancel(b, 1.0)
    assert all_ends(lane) == [("a", 2.5)]
    assert lane.bytes_total == 2 * MEGABYTE


def test_cancel_of_an_ended_transfer_changes_nothing() -> None:
    lane: Lane[str] = Lane(1.0)
    a = lane.start("a", MEGABYTE, 0.0)
    lane.start("b", 2 * MEGABYTE, 0.0)
    lane.tick(2.0)
    lane.cancel(a, 2.0)
    assert lane.active == 1
    assert all_ends(lane) == [("b", 3.0)]


def test_cancel_of_the_only_transfer_leaves_an_idle_link() -> None:
    lane: Lane[str] = Lane(1.0)
    lane.cancel(lane.start("a", MEGABYTE, 0.0), 0.5)
    assert lane.next_deadline_ms() is None
    lane.start("b", MEGABYTE, 0.75)
    assert all_ends(lane) == [("b", 1.75)]


def test_a_coarse_tick_gives_the_ends_in_their_order() -> None:
    lane: Lane[str] = Lane(1.0)
    lane.start("c", 3 * MEGABYTE, 0.0)
    lane.start("a", MEGABYTE, 0.0)
    lane.start("b", 2 * MEGABYTE, 0.0)
    assert ends(lane, 100.0) == ["a", "b", "c"]


@pytest.mark.parametrize("looks", [0, 1, 7, 1000])
def test_looking_at_the_time_in_between_does_not_move_an_end(looks: int) -> None:
    lane: Lane[str] = Lane(3.0)
    lane.start("a", 7 * MEGABYTE, 0.1)
    lane.start("b", 11 * MEGABYTE, 0.7)
    untouched: Lane[str] = Lane(3.0)
    untouched.start("a", 7 * MEGABYTE, 0.1)
    untouched.start("b", 11 * MEGABYTE, 0.7)
    for look in range(looks):
        assert ends(lane, 0.7 + 3.0 * look / 1000) == []
    # To the last bit: the live loop looks often, the replay does not.
    assert lane.next_deadline_ms() == untouched.next_deadline_ms()


def test_time_that_goes_back_does_not_undo_bytes() -> None:
    lane: Lane[str] = Lane(1.0)
    lane.start("a", 2 * MEGABYTE, 5.0)
    lane.start("b", MEGABYTE, 6.0)
    lane.start("c", MEGABYTE, 4.0)
    assert all_ends(lane) == [("a", 9.0), ("b", 9.0), ("c", 9.0)]


@pytest.mark.parametrize("bandwidth_gbps", [0.0, -1.0])
def test_link_without_bandwidth_is_instant(bandwidth_gbps: float) -> None:
    lane: Lane[str] = Lane(bandwidth_gbps)
    lane.start("a", 10**15, 3.0)
    lane.start("b", 1, 3.0)
    assert lane.next_deadline_ms() == 3.0
    assert ends(lane, 3.0) == ["a", "b"]


def test_clear_drops_every_transfer() -> None:
    lane: Lane[str] = Lane(1.0)
    a = lane.start("a", MEGABYTE, 0.0)
    lane.clear()
    assert (lane.active, lane.next_deadline_ms(), a.under_way) == (0, None, False)
    lane.start("b", MEGABYTE, 1.0)
    assert all_ends(lane) == [("b", 2.0)]
