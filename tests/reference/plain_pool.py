"""Plain KV block pool: one Python object per block in use, lists and dicts, no cleverness.

Owns physical blocks, identities, the LRU list of inactive blocks and the KV events. It must not
know requests, passes or time. Free blocks are alike, so they are only a number.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

KvEvent = tuple[str, int | None, list[int]]


class IdentityTable:
    """Gives equal content with equal parents the same identity (a small integer)."""

    def __init__(self) -> None:
        self._table: dict[tuple[int | None, Hashable], int] = {}

    def identity(self, parent: int | None, content: Hashable) -> int:
        return self._table.setdefault((parent, content), len(self._table) + 1)


@dataclass(slots=True, eq=False)
class PlainBlock:
    """A physical block in use. Private while `identity` is None; `holders` counts references and pins."""

    identity: int | None = None
    holders: int = 1


class PlainPool:
    """`capacity` physical blocks; every block is free, held (private or cached) or inactive."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.free = capacity
        self.copies: dict[int, list[PlainBlock]] = {}  # identity -> resident copies, first cached first
        self.inactive: dict[PlainBlock, None] = {}  # oldest first
        self.events: list[KvEvent] = []

    @property
    def active(self) -> int:
        """Blocks that are neither free nor inactive; reserved ones are active."""
        return self.capacity - self.free - len(self.inactive)

    def find(self, identity: int) -> PlainBlock | None:
        """The resident copy that was cached first."""
        copies = self.copies.get(identity)
        return copies[0] if copies else None

    def is_active(self, block: PlainBlock) -> bool:
        return block not in self.inactive

    def allocate(self, reuse: list[int], fresh: int) -> list[PlainBlock] | None:
        """Hold the resident blocks `reuse` and `fresh` private ones; None and no change if they don't fit."""
        reused = [self.copies[identity][0] for identity in reuse]
        reused_inactive = sum(1 for block in reused if block in self.inactive)
        if fresh > self.free + len(self.inactive) - reused_inactive:
            return None
        for block in reused:
            self.inactive.pop(block, None)
            block.holders += 1
        removed: list[int] = []
        for _ in range(fresh):
            if self.free > 0:
                self.free -= 1
            else:
                removed += self._evict_oldest()
        if removed:
            self.events.append(("removed", None, removed))
        return reused + [PlainBlock() for _ in range(fresh)]

    def _evict_oldest(self) -> list[int]:
        """Take the oldest inactive block; its identity is returned if no other copy is left."""
        block = next(iter(self.inactive))
        del self.inactive[block]
        assert block.identity is not None
        copies = self.copies[block.identity]
        copies.remove(block)
        if copies:
            return []
        del self.copies[block.identity]
        return [block.identity]

    def cache(self, blocks: list[PlainBlock], identities: list[int], start: int) -> None:
        """Make blocks[start:len(identities)] findable under their identities."""
        run: list[int] = []
        run_parent: int | None = None
        for i in range(start, len(identities)):
            block, identity = blocks[i], identities[i]
            assert block.identity is None
            block.identity = identity
            copies = self.copies.setdefault(identity, [])
            copies.append(block)
            if len(copies) > 1:  # already findable: not stored again
                self._publish_stored(run_parent, run)
                run = []
                continue
            if not run:
                run_parent = identities[i - 1] if i > 0 else None
            run.append(identity)
        self._publish_stored(run_parent, run)

    def _publish_stored(self, parent: int | None, run: list[int]) -> None:
        if run:
            self.events.append(("stored", parent, run))

    def release(self, blocks: list[PlainBlock]) -> None:
        """Give up one hold on each block, last block first, so that a leaf is evicted before its parent."""
        for block in reversed(blocks):
            block.holders -= 1
            if block.holders > 0:
                continue
            if block.identity is None:
                self.free += 1
            else:
                self.inactive[block] = None
