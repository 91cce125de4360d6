"""One lower tier's blocks: a bounded LRU set of identities, some pinned while they are read.

Owns residency in that tier. Knows nothing of links, the device or events.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from mocker_core.request import BlockIdentity


class TierStore:
    """`capacity` blocks; the least recently stored or read one that is not pinned goes first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        # Pins per identity, least recently used first.
        self._pins: OrderedDict[BlockIdentity, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pins)

    def __contains__(self, identity: BlockIdentity) -> bool:
        return identity in self._pins

    def identities(self) -> Iterable[BlockIdentity]:
        """Every resident identity, the next one to go first."""
        return self._pins.keys()

    def store(self, identity: BlockIdentity) -> BlockIdentity | None:
        """Put in an identity that is not resident; returns the one that had to go for it.

        That is `identity` itself if every block is pinned.
        """
        victim = None
        if len(self._pins) >= self.capacity:
            victim = next((held for held, pins in self._pins.items() if not pins), None)
            if victim is None:
                return identity
            del self._pins[victim]
        self._pins[identity] = 0
        return victim

    def touch(self, identity: BlockIdentity) -> None:
        """Make a resident identity the last one to go."""
        self._pins.move_to_end(identity)

    def pin(self, identity: BlockIdentity) -> None:
        """Keep a resident identity from being evicted; pins count."""
        self._pins[identity] += 1

    def unpin(self, identity: BlockIdentity) -> None:
        self._pins[identity] -= 1

    def clear(self) -> None:
        self._pins.clear()
