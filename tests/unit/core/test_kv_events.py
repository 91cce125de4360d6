from __future__ import annotations

from mocker_core.events import BlocksCleared, BlocksRemoved, BlocksStored, StorageTier, StoredBlock
from mocker_core.kv.events import KvEventLog
from mocker_core.kv.sequence import HashedSequence
from mocker_core.request import BlockIdentity

A, B, C = BlockIdentity(1), BlockIdentity(2), BlockIdentity(3)
SEQUENCE = HashedSequence((10, 11, 12, 13), (), 2)


def test_consecutive_blocks_form_one_event_with_the_parent_before_the_first() -> None:
    log = KvEventLog()
    log.stored(B, A, SEQUENCE, 0)
    log.stored(C, B, SEQUENCE, 1)
    assert log.take() == (BlocksStored(0, A, (StoredBlock(B, (10, 11)), StoredBlock(C, (12, 13)))),)


def test_block_that_does_not_follow_starts_an_event_of_its_own() -> None:
    log = KvEventLog()
    log.stored(A, None, SEQUENCE, 0)
    log.stored(C, None, SEQUENCE, 0)
    first, second = log.take()
    assert (first.event_id, second.event_id) == (0, 1)


def test_tiers_are_never_mixed_in_one_event() -> None:
    log = KvEventLog()
    log.stored(A, None, None, 0)
    log.stored(B, A, None, 1, StorageTier.HOST)
    log.removed(A)
    log.removed(B, StorageTier.HOST)
    tiers = [event.tier for event in log.take() if not isinstance(event, BlocksCleared)]
    assert tiers == [StorageTier.DEVICE, StorageTier.HOST, StorageTier.DEVICE, StorageTier.HOST]


def test_removals_are_joined_but_order_against_stores_is_kept() -> None:
    log = KvEventLog()
    log.removed(A)
    log.removed(B)
    log.stored(A, None, None, 0)
    log.removed(C)
    kinds = [(type(event), event.event_id) for event in log.take()]
    assert kinds == [(BlocksRemoved, 0), (BlocksStored, 1), (BlocksRemoved, 2)]


def test_removals_after_a_store_come_after_it() -> None:
    log = KvEventLog()
    log.stored(A, None, None, 0)
    log.removed(B)
    stored, removed = log.take()
    assert isinstance(stored, BlocksStored)
    assert removed == BlocksRemoved(1, (B,))


def test_event_ids_rise_over_takes_and_a_take_drains() -> None:
    log = KvEventLog()
    log.stored(A, None, None, 0)
    assert [event.event_id for event in log.take()] == [0]
    assert log.take() == ()
    log.cleared()
    assert log.take() == (BlocksCleared(1),)


def test_store_split_by_a_take_goes_on_as_a_new_event() -> None:
    log = KvEventLog()
    log.stored(A, None, None, 0)
    log.take()
    log.stored(B, A, None, 1)
    assert log.take() == (BlocksStored(1, A, (StoredBlock(B),)),)
