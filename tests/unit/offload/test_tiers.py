"""G2, G3 and their links on identities alone. A block takes one ms on an idle link."""

from __future__ import annotations

from typing import Any

import pytest

from mocker_core.events import StorageTier
from mocker_core.offload.tiers import Load, LowerTiers
from mocker_core.request import BlockIdentity
from tests.factories import make_args
from tests.unit.offload.tier_driver import OFFLOAD

A, B, C, D, E = (BlockIdentity(number) for number in range(1, 6))


class Told:
    """Records what the tiers tell, and counts the places in which each identity is."""

    def __init__(self) -> None:
        self.said: list[tuple[str, BlockIdentity, StorageTier]] = []
        self.places: dict[BlockIdentity, int] = {}

    def stored_again(self, identity: BlockIdentity, tier: StorageTier) -> None:
        self.said.append(("stored", identity, tier))
        assert self.places[identity] > 0, "its parent and tokens are forgotten"
        self.places[identity] += 1

    def removed(self, identity: BlockIdentity, tier: StorageTier) -> None:
        self.said.append(("removed", identity, tier))
        self.let_go(identity)

    def hold(self, identity: BlockIdentity) -> None:
        self.places[identity] = self.places.get(identity, 0) + 1

    def let_go(self, identity: BlockIdentity) -> None:
        self.places[identity] -= 1


def make_tiers(events: Told | None = None, **args: Any) -> LowerTiers:
    return LowerTiers(make_args(**(OFFLOAD | args)), events)


def fill(tiers: LowerTiers, *identities: BlockIdentity, now_ms: float = 0.0) -> float:
    """Copy down one after the other; returns when the last has arrived."""
    for identity in identities:
        tiers.copy_out(identity, now_ms)
        deadline_ms = tiers.next_deadline_ms()
        assert deadline_ms is not None
        now_ms = deadline_ms
        assert tiers.tick(now_ms).freed_slots == 1
    return now_ms


def drain(tiers: LowerTiers) -> tuple[float | None, list[Load]]:
    """Let all transfers end; when the last one did, and the loads in the order they arrived."""
    loaded: list[Load] = []
    last_ms = None
    while (deadline_ms := tiers.next_deadline_ms()) is not None:
        last_ms = deadline_ms
        loaded += tiers.tick(deadline_ms).loaded
    return last_ms, loaded


def test_copied_block_is_findable_only_once_it_has_arrived() -> None:
    tiers = make_tiers()
    tiers.copy_out(A, 0.0)
    assert tiers.in_g2_or_on_the_way(A)
    assert not tiers.is_findable(A)
    assert tiers.tick(0.99).freed_slots == 0
    assert tiers.tick(1.0).freed_slots == 1
    assert tiers.is_findable(A)
    assert list(tiers.copying()) == []


def test_copying_what_is_there_is_refused() -> None:
    tiers = make_tiers()
    tiers.copy_out(A, 0.0)
    with pytest.raises(AssertionError, match="twice"):
        tiers.copy_out(A, 0.0)


def test_full_g2_without_g3_loses_its_oldest() -> None:
    told = Told()
    tiers = make_tiers(told, num_g2_blocks=2)
    fill(tiers, A, B, C)
    assert list(tiers.g2.identities()) == [B, C]
    assert told.said[-2:] == [("removed", A, StorageTier.HOST), ("stored", C, StorageTier.HOST)]
    assert told.places == {A: 0, B: 1, C: 1}


def test_touch_keeps_what_the_device_gave_up_again() -> None:
    tiers = make_tiers(num_g2_blocks=2)
    now_ms = fill(tiers, A, B)
    tiers.touch(A)
    fill(tiers, C, now_ms=now_ms)
    assert list(tiers.g2.identities()) == [A, C]


def test_full_g2_sends_its_oldest_to_g3_over_the_link() -> None:
    told = Told()
    tiers = make_tiers(told, num_g2_blocks=1, num_g3_blocks=1)
    now_ms = fill(tiers, A, B)
    assert list(tiers.demoting()) == [A]
    assert not tiers.is_findable(A)
    tiers.tick(now_ms + 1.0)
    assert tiers.is_findable(A)
    fill(tiers, C, now_ms=now_ms + 1.0)
    drain(tiers)
    assert tiers.g3 is not None
    assert list(tiers.g3.identities()) == [B]
    assert ("removed", A, StorageTier.DISK) in told.said
    assert told.places == {A: 0, B: 1, C: 1}


def test_block_that_g3_has_already_is_not_sent_again() -> None:
    tiers = make_tiers(num_g2_blocks=1, num_g3_blocks=2)
    now_ms = fill(tiers, A, B)
    drain(tiers)
    load = tiers.start_load([A], now_ms + 5.0)
    _, loaded = drain(tiers)
    assert loaded == [load]
    before = tiers.stats(parked_requests=0, swap_ins_total=0).g2_to_g3_bytes_total
    fill(tiers, C, now_ms=now_ms + 20.0)  # A, now in G2 too, goes
    last_ms, _ = drain(tiers)
    assert last_ms is None
    assert tiers.stats(parked_requests=0, swap_ins_total=0).g2_to_g3_bytes_total == before
    assert tiers.is_findable(A)


def test_block_that_comes_down_to_g3_again_is_the_last_to_go_there() -> None:
    tiers = make_tiers(num_g2_blocks=1, num_g3_blocks=2)
    fill(tiers, A, B, C)
    drain(tiers)
    assert tiers.g3 is not None
    assert list(tiers.g3.identities()) == [A, B]
    tiers.start_load([A], 10.0)
    drain(tiers)  # A is in G2 as well, and C had to go: B was the oldest that was not being read
    assert list(tiers.g3.identities()) == [A, C]
    tiers.tick(20.0)
    fill(tiers, D, now_ms=20.0)  # A goes down again
    drain(tiers)
    assert list(tiers.g3.identities()) == [C, A]


def test_load_from_g2_takes_its_size_over_the_link() -> None:
    tiers = make_tiers()
    now_ms = fill(tiers, A, B, C)
    load = tiers.start_load([A, B, C], now_ms)
    assert tiers.tick(now_ms + 2.9).loaded == ()
    assert tiers.tick(now_ms + 3.0).loaded == (load,)
    assert tiers.is_findable(A)


def test_two_loads_share_the_link() -> None:
    tiers = make_tiers()
    now_ms = fill(tiers, A, B, C)
    short, long = tiers.start_load([A], now_ms), tiers.start_load([B, C], now_ms)
    assert tiers.tick(now_ms + 2.0).loaded == (short,)
    assert tiers.next_deadline_ms() == pytest.approx(now_ms + 3.0)
    assert drain(tiers)[1] == [long]


def test_links_do_not_slow_each_other() -> None:
    tiers = make_tiers()
    now_ms = fill(tiers, A)
    load = tiers.start_load([A], now_ms)
    tiers.copy_out(B, now_ms)
    ended = tiers.tick(now_ms + 1.0)
    assert (ended.freed_slots, ended.loaded) == (1, (load,))


def test_load_pins_what_it_reads() -> None:
    tiers = make_tiers(num_g2_blocks=2, bandwidth_g2_to_g1_gbps=0.001)
    now_ms = fill(tiers, A, B)
    load = tiers.start_load([A], now_ms)
    now_ms = fill(tiers, C, D, now_ms=now_ms)
    assert list(tiers.g2.identities()) == [A, D]
    tiers.cancel_load(load, now_ms)
    fill(tiers, E, now_ms=now_ms)
    assert list(tiers.g2.identities()) == [D, E]


def test_newcomer_is_lost_while_all_of_g2_is_read() -> None:
    told = Told()
    tiers = make_tiers(told, num_g2_blocks=1, bandwidth_g2_to_g1_gbps=0.001)
    now_ms = fill(tiers, A)
    tiers.start_load([A], now_ms)
    fill(tiers, B, now_ms=now_ms)
    assert list(tiers.g2.identities()) == [A]
    assert told.places == {A: 1, B: 0}


def test_load_from_g3_comes_through_g2() -> None:
    told = Told()
    tiers = make_tiers(told, num_g2_blocks=1, num_g3_blocks=4)
    fill(tiers, A, B)
    drain(tiers)
    load = tiers.start_load([A], 10.0)
    assert tiers.tick(10.99).loaded == ()
    assert list(tiers.g2.identities()) == [B]
    tiers.tick(11.0)
    assert list(tiers.g2.identities()) == [A]
    assert list(tiers.demoting()) == [B]
    assert tiers.tick(12.0).loaded == (load,)
    stats = tiers.stats(parked_requests=0, swap_ins_total=0)
    assert stats.g3_to_g2_bytes_total == stats.g2_to_g1_bytes_total == 1_000_000


def test_load_of_both_tiers_arrives_with_its_last_block() -> None:
    tiers = make_tiers(num_g2_blocks=1, num_g3_blocks=4)
    fill(tiers, B, A)  # B is in G3, A in G2
    drain(tiers)
    load = tiers.start_load([A, B], 10.0)
    assert tiers.tick(11.5).loaded == ()
    last_ms, loaded = drain(tiers)
    assert loaded == [load]
    assert last_ms == pytest.approx(12.0)


def test_load_passes_through_a_g2_that_has_no_room() -> None:
    tiers = make_tiers(num_g2_blocks=1, num_g3_blocks=4, bandwidth_g2_to_g1_gbps=0.5)
    fill(tiers, B, A)
    drain(tiers)
    first = tiers.start_load([A], 10.0)
    second = tiers.start_load([B], 10.5)
    tiers.tick(11.6)
    assert list(tiers.g2.identities()) == [A]
    assert drain(tiers)[1] == [first, second]
    assert tiers.is_findable(B)


@pytest.mark.parametrize("at_ms", [10.0, 10.5, 11.0, 11.5])
def test_cancelled_load_leaves_no_transfer_and_no_pin(at_ms: float) -> None:
    tiers = make_tiers(num_g2_blocks=1, num_g3_blocks=1)
    fill(tiers, B, A)
    drain(tiers)
    load = tiers.start_load([A, B], 10.0)
    tiers.tick(at_ms)
    tiers.cancel_load(load, at_ms)
    assert drain(tiers)[1] == []
    assert tiers.g3 is not None
    fill(tiers, C, D, E, now_ms=20.0)
    drain(tiers)
    assert (list(tiers.g2.identities()), list(tiers.g3.identities())) == ([E], [D])


def test_coarse_tick_ends_a_chain_at_its_own_instants() -> None:
    fine, coarse = (make_tiers(num_g2_blocks=1, num_g3_blocks=4) for _ in range(2))
    for tiers in (fine, coarse):
        fill(tiers, A, B)
    drain(fine)
    coarse.tick(100.0)
    for tiers in (fine, coarse):
        tiers.start_load([A], 100.0)
    assert drain(fine)[0] == drain(coarse)[0] == pytest.approx(102.0)


def test_instant_links_move_blocks_in_no_time() -> None:
    names = ("g1_to_g2", "g2_to_g1", "g2_to_g3", "g3_to_g2")
    instant: dict[str, Any] = {f"bandwidth_{name}_gbps": 0.0 for name in names}
    tiers = make_tiers(num_g2_blocks=1, num_g3_blocks=1, **instant)
    tiers.copy_out(A, 7.0)
    tiers.copy_out(B, 7.0)
    assert tiers.tick(7.0).freed_slots == 2
    assert (tiers.is_findable(A), tiers.is_findable(B)) == (True, True)
    load = tiers.start_load([B, A], 7.0)
    assert tiers.tick(7.0).loaded == (load,)
    assert tiers.next_deadline_ms() is None


def test_clear_forgets_blocks_and_transfers() -> None:
    tiers = make_tiers(num_g2_blocks=1, num_g3_blocks=4)
    now_ms = fill(tiers, A, B)
    tiers.copy_out(C, now_ms)
    tiers.clear()
    assert tiers.next_deadline_ms() is None
    assert not any(tiers.is_findable(identity) for identity in (A, B, C))
    stats = tiers.stats(parked_requests=0, swap_ins_total=0)
    assert (stats.g2_blocks_used, stats.g3_blocks_used, stats.transfers_active) == (0, 0, 0)
