"""Answers kept for later requests, bounded by number and weight; the oldest go first.

Owns nothing but the bounds. Must not know what is kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

KEPT_ITEMS = 1000
KEPT_BYTES = 64_000_000


class BoundedStore(Generic[T]):
    """Values by id in order of their coming. `weigh` gives a value's bytes, taken when it is put or weighed.

    `is_pinned`: values that must stay (what still runs); they count, but are never dropped."""

    def __init__(
        self,
        *,
        weigh: Callable[[T], int],
        is_pinned: Callable[[T], bool] = lambda value: False,
        max_items: int = KEPT_ITEMS,
        max_bytes: int = KEPT_BYTES,
    ) -> None:
        self._values: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._weigh = weigh
        self._is_pinned = is_pinned
        self._max_items = max_items
        self._max_bytes = max_bytes
        self.weight_bytes = 0

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[T]:
        """The values, the oldest first."""
        return (value for value, _ in self._values.values())

    def get(self, key: str) -> T | None:
        found = self._values.get(key)
        return None if found is None else found[0]

    def put(self, key: str, value: T) -> None:
        """Keep it as the newest; one of the same id is replaced."""
        self.pop(key)
        weight = self._weigh(value)
        self._values[key] = (value, weight)
        self.weight_bytes += weight
        self._trim()

    def replace(self, key: str, value: T) -> None:
        """Another value in the same place; without effect if there is none."""
        found = self._values.get(key)
        if found is not None:
            weight = self._weigh(value)
            self._values[key] = (value, weight)
            self.weight_bytes += weight - found[1]
            self._trim()

    def weigh_again(self, key: str) -> None:
        """The value has grown, or it is no longer pinned."""
        found = self._values.get(key)
        if found is not None:
            self.replace(key, found[0])

    def pop(self, key: str) -> T | None:
        found = self._values.pop(key, None)
        if found is None:
            return None
        self.weight_bytes -= found[1]
        return found[0]

    def _trim(self) -> None:
        if not self._is_full():
            return
        for key, (value, _) in list(self._values.items()):
            if not self._is_pinned(value):
                self.pop(key)
                if not self._is_full():
                    return

    def _is_full(self) -> bool:
        return len(self._values) > self._max_items or self.weight_bytes > self._max_bytes
