from __future__ import annotations

import asyncio
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.admin.event_ring import EventRing, Gap


def filled(count: int, *, capacity: int = 4, first_id: int = 1) -> EventRing[str]:
    ring: EventRing[str] = EventRing(capacity, first_id=first_id)
    for number in range(count):
        ring.push(f"event {number}")
    return ring


def test_reader_from_the_beginning_gets_everything_while_nothing_was_dropped() -> None:
    batch = filled(3).read(0, 10)
    assert (batch.first_id, batch.items, batch.gap) == (1, ["event 0", "event 1", "event 2"], None)


def test_late_reader_is_told_how_many_events_it_missed() -> None:
    batch = filled(10).read(0, 10)
    assert batch.gap == Gap(missed=6, last_id=6)
    assert batch.first_id == 7
    assert batch.items == [f"event {number}" for number in range(6, 10)]


def test_reader_that_resumes_goes_on_after_its_last_id_without_a_gap() -> None:
    batch = filled(10).read(8, 10)
    assert (batch.first_id, batch.items, batch.gap) == (9, ["event 8", "event 9"], None)


def test_reader_that_resumes_too_late_gets_the_gap_between_its_id_and_the_oldest() -> None:
    assert filled(10).read(4, 10).gap == Gap(missed=2, last_id=6)


def test_reader_at_the_end_gets_nothing() -> None:
    batch = filled(10).read(10, 10)
    assert (batch.items, batch.gap) == ([], None)


@pytest.mark.parametrize("foreign_id", [3, 99, 1015])
def test_id_of_another_process_is_a_gap_of_unknown_size(foreign_id: int) -> None:
    batch = filled(10, first_id=1000).read(foreign_id, 10)
    assert batch.gap == Gap(missed=None, last_id=1005)
    assert batch.first_id == 1006
    assert len(batch.items) == 4


def test_limit_leaves_the_rest_for_the_next_read() -> None:
    ring = filled(4)
    first = ring.read(0, 3)
    assert len(first.items) == 3
    assert ring.read(3, 3).items == ["event 3"]


def test_heavy_events_push_out_the_oldest_until_the_weight_fits() -> None:
    ring: EventRing[int] = EventRing(100, max_weight=10)
    for number in range(6):
        ring.push(number, 4)
        assert ring.weight <= 10
    assert ring.read(0, 10).items == [4, 5]


def test_single_event_heavier_than_the_ring_is_kept_until_the_next_one() -> None:
    ring: EventRing[int] = EventRing(100, max_weight=10)
    ring.push(1, 50)
    assert ring.read(0, 10).items == [1]
    ring.push(2, 1)
    assert ring.read(0, 10).items == [2]


def test_waiting_reader_is_woken_by_a_push_and_by_the_close() -> None:
    async def scenario() -> list[str]:
        ring: EventRing[str] = EventRing(4)
        seen = []

        async def read() -> None:
            after = 0
            while True:
                await ring.wait(after)
                batch = ring.read(after, 10)
                seen.extend(batch.items)
                after = batch.first_id + len(batch.items) - 1
                if ring.closed:
                    seen.append("closed")
                    return

        reader = asyncio.create_task(read())
        for number in range(3):
            await asyncio.sleep(0)
            ring.push(f"event {number}")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ring.close()
        await reader
        return seen

    assert asyncio.run(scenario()) == ["event 0", "event 1", "event 2", "closed"]


def test_memory_stays_flat_while_nobody_reads() -> None:
    ring: EventRing[bytes] = EventRing(1000, max_weight=2000)
    for _ in range(2000):
        ring.push(bytes(100), 2)
    tracemalloc.start()
    try:
        for _ in range(1000):
            ring.push(bytes(100), 2)
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(50_000):
            ring.push(bytes(100), 2)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(ring) == 1000
    assert after - before < 5_000


@given(
    weights=st.lists(st.integers(1, 7), max_size=60),
    capacity=st.integers(1, 9),
    max_weight=st.integers(1, 20),
    reads=st.sets(st.integers(0, 60)),
)
def test_reader_gets_every_event_once_or_a_gap_that_counts_it(
    weights: list[int], capacity: int, max_weight: int, reads: set[int]
) -> None:
    ring: EventRing[int] = EventRing(capacity, max_weight=max_weight)
    after = 0
    seen: list[int | None] = []

    def read() -> int:
        batch = ring.read(after, 3)
        if batch.gap is not None:
            assert batch.gap.missed is not None and batch.gap.missed > 0
            seen.extend([None] * batch.gap.missed)
        seen.extend(batch.items)
        return batch.first_id + len(batch.items) - 1

    for number, weight in enumerate(weights):
        ring.push(number, weight)
        assert len(ring) <= capacity
        assert ring.weight <= max_weight or len(ring) == 1
        if number in reads:
            after = read()
    while after < ring.last_id:
        after = read()
    assert len(seen) == len(weights)
    assert all(item in (None, number) for number, item in enumerate(seen))
