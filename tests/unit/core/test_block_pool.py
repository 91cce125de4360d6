from __future__ import annotations

import pytest

from mocker_core.events import BlocksRemoved
from mocker_core.kv.block_pool import BlockHandle, BlockPool
from mocker_core.kv.events import KvEventLog
from mocker_core.kv.sequence import HashedSequence
from mocker_core.request import BlockIdentity

SEQUENCE = HashedSequence(range(100), (), 4)


def identities(*numbers: int) -> list[BlockIdentity]:
    return [BlockIdentity(number) for number in numbers]


def cached(pool: BlockPool, *numbers: int) -> list[BlockHandle]:
    """Allocate and cache blocks with these identities; the caller holds one reference on each."""
    assert pool.allocate((), len(numbers))
    return pool.cache(identities(*numbers), None, SEQUENCE, 0)


def removed(log: KvEventLog) -> list[int]:
    return [i for event in log.take() if isinstance(event, BlocksRemoved) for i in event.identities]


def test_allocation_takes_free_blocks_first() -> None:
    pool = BlockPool(4)
    pool.release(cached(pool, 1), 0)
    assert pool.allocate((), 3)
    assert (pool.free_blocks, pool.inactive_blocks, pool.used_blocks) == (0, 1, 3)


def test_allocation_then_evicts_the_oldest_inactive() -> None:
    log = KvEventLog()
    pool = BlockPool(3, log)
    pool.release(cached(pool, 1), 0)
    pool.release(cached(pool, 2), 0)
    assert pool.allocate((), 2)
    assert removed(log) == [1]
    assert list(pool.identities()) == [2]


def test_allocation_that_cannot_be_met_changes_nothing() -> None:
    pool = BlockPool(3)
    held = cached(pool, 1)
    pool.release(cached(pool, 2), 0)
    assert not pool.allocate((), 3)
    assert not pool.allocate(held, 3)
    assert (pool.free_blocks, pool.inactive_blocks, pool.ref_count(held[0])) == (1, 1, 1)


def test_reused_blocks_cannot_be_evicted_by_their_own_allocation() -> None:
    pool = BlockPool(3)
    blocks = cached(pool, 1, 2)
    pool.release(blocks, 0)
    assert not pool.allocate(blocks, 2)
    assert pool.allocate(blocks, 1)
    assert (pool.free_blocks, pool.inactive_blocks) == (0, 0)
    assert [pool.ref_count(block) for block in blocks] == [1, 1]


def test_shortfall_counts_reused_inactive_blocks_as_taken() -> None:
    pool = BlockPool(3)
    blocks = cached(pool, 1, 2)
    assert pool.shortfall(blocks, 1) == 0
    pool.release(blocks, 0)
    assert pool.shortfall(blocks, 1) == 0
    assert pool.shortfall(blocks, 2) == 1
    assert pool.shortfall((), 3) == 0


def test_blocks_are_freed_last_to_first_so_that_a_leaf_goes_before_its_parent() -> None:
    log = KvEventLog()
    pool = BlockPool(3, log)
    pool.release(cached(pool, 1, 2, 3), 0)
    assert pool.allocate((), 3)
    assert removed(log) == [3, 2, 1]


def test_reuse_makes_a_block_the_youngest_again() -> None:
    log = KvEventLog()
    pool = BlockPool(2, log)
    first, second = cached(pool, 1), cached(pool, 2)
    pool.release(first, 0)
    pool.release(second, 0)
    pool.reference(first)
    pool.release(first, 0)
    assert pool.allocate((), 1)
    assert removed(log) == [2]


def test_block_of_several_holders_is_inactive_when_the_last_one_goes() -> None:
    pool = BlockPool(2)
    blocks = cached(pool, 1)
    pool.reference(blocks)
    pool.release(blocks, 0)
    assert pool.inactive_blocks == 0
    pool.release(blocks, 0)
    assert pool.inactive_blocks == 1


def test_private_block_is_free_at_once() -> None:
    pool = BlockPool(2)
    assert pool.allocate((), 2)
    pool.release((), 2)
    assert (pool.free_blocks, pool.used_blocks) == (2, 0)


def test_second_copy_is_a_block_of_its_own_and_lookup_gives_the_first() -> None:
    log = KvEventLog()
    pool = BlockPool(3, log)
    (first,), (second,) = cached(pool, 1), cached(pool, 1)
    assert pool.lookup(BlockIdentity(1)) == first
    assert pool.used_blocks == 2
    assert len(log.take()) == 1
    pool.release([first], 0)
    assert pool.resident_prefix(identities(1), 1) == (1, 0)
    assert pool.allocate((), 2)
    assert pool.lookup(BlockIdentity(1)) == second
    assert pool.resident_prefix(identities(1), 1) == (1, 1)
    assert removed(log) == []


def test_identity_is_removed_when_its_last_copy_goes() -> None:
    log = KvEventLog()
    pool = BlockPool(3, log)
    copies = [cached(pool, 1) for _ in range(3)]
    for copy in (copies[2], copies[0], copies[1]):
        pool.release(copy, 0)
    assert pool.allocate((), 2)
    assert pool.lookup(BlockIdentity(1)) == copies[1][0]
    assert removed(log) == []
    assert pool.allocate((), 1)
    assert removed(log) == [1]
    assert pool.lookup(BlockIdentity(1)) is None


def test_resident_prefix_ends_at_the_first_gap_and_at_the_limit() -> None:
    pool = BlockPool(5)
    pool.release(cached(pool, 3), 0)
    cached(pool, 1, 2)
    assert pool.resident_prefix(identities(1, 2, 3, 9, 1), 5) == (3, 2)
    assert pool.resident_prefix(identities(1, 2, 3), 2) == (2, 2)
    assert pool.resident_prefix(identities(9, 1), 2) == (0, 0)
    assert pool.resident_prefix([], 0) == (0, 0)


@pytest.mark.parametrize("events", [None, KvEventLog()])
def test_many_evictions_with_and_without_a_listener_leave_the_same(events: KvEventLog | None) -> None:
    pool = BlockPool(4, events)
    for start in range(0, 40, 2):
        pool.release(cached(pool, start, start + 1), 0)
    assert sorted(pool.identities()) == [36, 37, 38, 39]
    assert (pool.free_blocks, pool.inactive_blocks) == (0, 4)
