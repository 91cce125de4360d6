from __future__ import annotations

import pytest

from mocker_core.kv.block_pool import BlockPool
from mocker_core.kv.manager import BlockTable, KVCacheManager, PrefillCost
from mocker_core.kv.sequence import HashedSequence

TOKENS = tuple(range(100))


def make_kv(capacity: int = 6, *, caching: bool = True) -> KVCacheManager:
    return KVCacheManager(BlockPool(capacity), 4, enable_prefix_caching=caching)


def table(length: int = 16) -> BlockTable:
    return BlockTable(HashedSequence(TOKENS[:length], (), 4))


def computed(kv: KVCacheManager, length: int) -> BlockTable:
    made = table(length)
    assert kv.allocate(made, length, [])
    kv.cache_computed(made, length)
    return made


def test_full_blocks_become_cached_and_a_partial_one_stays_private() -> None:
    held = computed(make_kv(), 10)
    assert (len(held.cached), held.private, held.num_blocks) == (2, 1, 3)


@pytest.mark.parametrize(
    ("length", "complete", "cost"),
    [
        (16, False, PrefillCost(12, 8)),
        (12, False, PrefillCost(8, 8)),
        (12, True, PrefillCost(12, 8)),
        (13, False, PrefillCost(12, 8)),
        (8, True, PrefillCost(8, 8)),
        (8, False, PrefillCost(4, 4)),
        (3, False, PrefillCost(0, 0)),
    ],
)
def test_cost_stops_before_the_last_token_unless_the_request_is_complete(
    length: int, complete: bool, cost: PrefillCost
) -> None:
    kv = make_kv()
    first = computed(kv, 12)
    second = computed(kv, 8)  # holds nothing of the first: its blocks are second copies
    kv.free(second)
    reuse = kv.prefix_for(third := table(), 2)
    assert kv.allocate(third, 8, reuse)
    kv.free(first)  # leaves the third block inactive; the first two are third's
    assert kv.prefill_cost(table(length), length, complete=complete) == cost


def test_reuse_covers_the_start_and_fresh_blocks_the_rest() -> None:
    kv = make_kv()
    kv.free(computed(kv, 8))
    again = table()
    assert kv.allocate(again, 10, kv.prefix_for(again, 2))
    assert (len(again.cached), again.private) == (2, 1)
    assert kv.pool.used_blocks == 3


def test_allocation_within_the_last_block_takes_nothing() -> None:
    kv = make_kv()
    held = table()
    assert kv.allocate(held, 5, [])
    assert kv.allocate(held, 8, [])
    assert held.num_blocks == 2


def test_failed_allocation_leaves_the_table_as_it_was() -> None:
    kv = make_kv(2)
    held = table()
    assert kv.allocate(held, 8, [])
    assert not kv.allocate(held, 9, [])
    assert (held.num_blocks, kv.pool.used_blocks) == (2, 2)


def test_with_prefix_caching_off_nothing_is_ever_cached_or_hit() -> None:
    kv = make_kv(caching=False)
    held = computed(kv, 12)
    assert (len(held.cached), held.private) == (0, 3)
    assert kv.prefill_cost(table(), 16, complete=False) == PrefillCost(0, 0)
    kv.free(held)
    assert (kv.pool.free_blocks, kv.pool.inactive_blocks) == (6, 0)


def test_freed_table_can_be_used_again() -> None:
    kv = make_kv()
    held = computed(kv, 12)
    kv.free(held)
    assert (held.num_blocks, kv.pool.used_blocks, kv.pool.inactive_blocks) == (0, 0, 3)
    assert kv.allocate(held, 12, kv.prefix_for(held, 2))
    kv.cache_computed(held, 12)
    assert len(held.cached) == 3


def test_blocks_for_rounds_up() -> None:
    assert [make_kv().blocks_for(tokens) for tokens in (0, 1, 4, 5)] == [0, 1, 1, 2]
