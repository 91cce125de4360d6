"""One lower tier: a bounded LRU set with pins."""

from __future__ import annotations

from mocker_core.offload.store import TierStore
from mocker_core.request import BlockIdentity


def block(number: int) -> BlockIdentity:
    return BlockIdentity(number)


def full_store(*numbers: int) -> TierStore:
    store = TierStore(len(numbers))
    for number in numbers:
        assert store.store(block(number)) is None
    return store


def test_full_store_gives_up_the_oldest() -> None:
    store = full_store(1, 2)
    assert store.store(block(3)) == 1
    assert list(store.identities()) == [2, 3]


def test_touch_makes_a_block_the_last_to_go() -> None:
    store = full_store(1, 2, 3)
    store.touch(block(1))
    assert [store.store(block(number)) for number in (4, 5, 6)] == [2, 3, 1]


def test_pinned_block_stays_until_its_last_pin_is_gone() -> None:
    store = full_store(1, 2)
    store.pin(block(1))
    store.pin(block(1))
    assert store.store(block(3)) == 2
    store.unpin(block(1))
    assert store.store(block(4)) == 3
    store.unpin(block(1))
    assert store.store(block(5)) == 1


def test_store_with_all_pinned_refuses_the_newcomer() -> None:
    store = full_store(1)
    store.pin(block(1))
    assert store.store(block(2)) == 2
    assert block(2) not in store
    assert list(store.identities()) == [1]


def test_clear_empties_it() -> None:
    store = full_store(1, 2)
    store.clear()
    assert len(store) == 0
    assert store.store(block(1)) is None
