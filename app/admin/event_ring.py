"""A bounded ring of recent events with strictly increasing ids, for readers that come, go and resume.

Owns what is kept and who waits. Pushing encodes nothing and never waits; each reader has only a number,
so a slow one costs no memory and is told of what it missed. Knows nothing of HTTP or of what events mean.
All calls come on one event loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Gap:
    """Events that a reader can't have any more. `missed` is None where nobody knows how many.

    `last_id` is the last id of the gap: a reader that resumes after it goes on with what is left.
    """

    missed: int | None
    last_id: int


@dataclass(frozen=True, slots=True)
class RingBatch(Generic[T]):
    """Events in order; the first has the id `first_id`, each further one the next. A gap came before."""

    first_id: int
    items: list[T]
    gap: Gap | None = None


class EventRing(Generic[T]):
    """Keeps the newest events: at most `capacity` of them, of at most `max_weight` together.

    A single event heavier than `max_weight` is kept until the next one. The first event gets `first_id`.
    """

    __slots__ = (
        "_capacity",
        "_closed",
        "_items",
        "_max_weight",
        "_next_id",
        "_oldest_id",
        "_origin_id",
        "_waiters",
        "_weight",
        "_weights",
    )

    def __init__(self, capacity: int, *, max_weight: int | None = None, first_id: int = 1) -> None:
        assert capacity > 0 and first_id > 0, (capacity, first_id)
        self._capacity = capacity
        self._max_weight = capacity if max_weight is None else max_weight
        self._items: list[T | None] = [None] * capacity
        self._weights = [0] * capacity
        self._weight = 0
        self._origin_id = self._oldest_id = self._next_id = first_id
        self._waiters: list[asyncio.Future[None]] = []
        self._closed = False

    def __len__(self) -> int:
        return self._next_id - self._oldest_id

    @property
    def last_id(self) -> int:
        """Id of the newest event; before the first one, one less than its id."""
        return self._next_id - 1

    @property
    def weight(self) -> int:
        """Of everything that is kept."""
        return self._weight

    @property
    def closed(self) -> bool:
        return self._closed

    def push(self, item: T, weight: int = 1) -> None:
        """Add the newest event and let the oldest go that have no room. Hot: about 1 us, no encoding."""
        event_id = self._next_id
        if event_id - self._oldest_id == self._capacity:
            self._drop_oldest()
        slot = event_id % self._capacity
        self._items[slot] = item
        self._weights[slot] = weight
        self._weight += weight
        self._next_id = event_id + 1
        while self._weight > self._max_weight and self._oldest_id < event_id:
            self._drop_oldest()
        if self._waiters:
            self._wake()

    def read(self, after_id: int, limit: int) -> RingBatch[T]:
        """Up to `limit` events after `after_id`, and the gap before them if there is one.

        `after_id` 0 stands for the very beginning. An id that this ring never gave is a gap of unknown size.
        """
        oldest, gap = self._oldest_id, None
        if after_id == 0:
            after_id = self._origin_id - 1
        if not self._origin_id - 1 <= after_id < self._next_id:
            gap = Gap(None, oldest - 1)
            after_id = oldest - 1
        elif after_id < oldest - 1:
            gap = Gap(oldest - 1 - after_id, oldest - 1)
            after_id = oldest - 1
        first = after_id + 1
        stop = min(self._next_id, first + limit)
        items = [self._items[event_id % self._capacity] for event_id in range(first, stop)]
        return RingBatch(first, items, gap)  # type: ignore[arg-type] # the slots in between are filled

    async def wait(self, after_id: int) -> None:
        """Return once there is an event after `after_id`, or the ring is closed."""
        while after_id >= self.last_id and not self._closed:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def close(self) -> None:
        """No reader shall wait any longer; what is kept can still be read."""
        self._closed = True
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _drop_oldest(self) -> None:
        slot = self._oldest_id % self._capacity
        self._items[slot] = None
        self._weight -= self._weights[slot]
        self._oldest_id += 1
