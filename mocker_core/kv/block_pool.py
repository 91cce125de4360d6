"""The physical KV blocks of one rank: free, private, cached (active or inactive), in copy.

Owns reference counts, the LRU of inactive blocks and identity lookup (engine.md section 3). Knows
nothing of requests. Private blocks have no identity and are therefore only a number; a cached
block is an object. Counts always satisfy: free + active + inactive + in copy = capacity, where
active is every private, reserved or referenced block.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import islice

from mocker_core.kv.events import KvEventLog
from mocker_core.request import BlockIdentity, BlockSequence


class CachedBlock:
    """One physical copy of an identity. Reservations and parked requests count as references."""

    __slots__ = ("identity", "ref_count")

    def __init__(self, identity: BlockIdentity) -> None:
        self.identity = identity
        self.ref_count = 1


class BlockPool:
    """All-or-nothing allocation with prefix reuse. `events` is None when nobody wants KV events."""

    def __init__(self, capacity: int, events: KvEventLog | None = None) -> None:
        self.capacity = capacity
        self.events = events
        self.free_blocks = capacity
        self.in_copy_blocks = 0
        # Grows whenever a block may have become active: bounds how much a stale prefill cost can have
        # improved.
        self.activations = 0
        self._first: dict[BlockIdentity, CachedBlock] = {}
        self._later_copies: dict[BlockIdentity, list[CachedBlock]] = {}
        self._inactive: OrderedDict[CachedBlock, None] = OrderedDict()

    @property
    def inactive_blocks(self) -> int:
        return len(self._inactive)

    @property
    def used_blocks(self) -> int:
        """Active blocks as metrics show them: private, reserved, referenced and in copy."""
        return self.capacity - self.free_blocks - len(self._inactive)

    def lookup(self, identity: BlockIdentity) -> CachedBlock | None:
        """The copy cached first among those resident."""
        return self._first.get(identity)

    def identities(self) -> Iterable[BlockIdentity]:
        """Every resident identity, in the order of first caching."""
        return self._first.keys()

    def resident_prefix(self, identities: Sequence[BlockIdentity], limit: int) -> tuple[int, int]:
        """(hits, active hits) of the longest resident prefix of the first `limit` identities."""
        hits = active = 0
        get = self._first.get
        for identity in identities:
            if hits == limit:
                break
            block = get(identity)
            if block is None:
                break
            hits += 1
            if block.ref_count:
                active += 1
        return hits, active

    def prefix_blocks(self, identities: Sequence[BlockIdentity], count: int) -> list[CachedBlock]:
        """The first `count` blocks of a prefix that `resident_prefix` found."""
        first = self._first
        return [first[identity] for identity in identities[:count]]

    def shortfall(self, reuse: Sequence[CachedBlock], fresh: int) -> int:
        """How many blocks are missing to take `reuse` and `fresh` others; 0 or less if it can be met."""
        inactive_reused = 0
        for block in reuse:
            if not block.ref_count:
                inactive_reused += 1
        return fresh + inactive_reused - self.free_blocks - len(self._inactive)

    def allocate(self, reuse: Sequence[CachedBlock], fresh: int) -> bool:
        """Take a reference on each of `reuse` and `fresh` private blocks, or change nothing and return
        False.
        """
        if reuse:
            if self.shortfall(reuse, fresh) > 0:
                return False
            self.reference(reuse)
        elif fresh > self.free_blocks + len(self._inactive):
            return False
        missing = fresh - self.free_blocks
        if missing > 0:
            self._evict_oldest(missing)
        self.free_blocks -= fresh
        return True

    def reference(self, blocks: Sequence[CachedBlock]) -> None:
        """Pin cached blocks: one reference each."""
        inactive = self._inactive
        for block in blocks:
            if not block.ref_count:
                del inactive[block]
                self.activations += 1
            block.ref_count += 1

    def cache(
        self,
        identities: Sequence[BlockIdentity],
        parent: BlockIdentity | None,
        sequence: BlockSequence,
        start: int,
    ) -> list[CachedBlock]:
        """Turn private blocks into cached ones with these identities; block `start` is the first.

        An identity that is resident already gets a further copy, and is not stored again.
        """
        first = self._first
        blocks: list[CachedBlock] = []
        for identity in identities:
            block = CachedBlock(identity)
            if identity in first:
                self._later_copies.setdefault(identity, []).append(block)
            else:
                first[identity] = block
                if self.events is not None:
                    self.events.stored(identity, parent, sequence, start + len(blocks))
            parent = identity
            blocks.append(block)
        self.activations += len(blocks)
        return blocks

    def release(self, blocks: Sequence[CachedBlock], private: int) -> None:
        """Give back a request's blocks, last to first, so that a leaf is evicted before its parent."""
        self.free_blocks += private
        inactive = self._inactive
        for block in reversed(blocks):
            block.ref_count -= 1
            if not block.ref_count:
                inactive[block] = None

    def oldest_inactive(self, count: int, keep: Sequence[CachedBlock] = ()) -> list[CachedBlock]:
        """The `count` blocks to be evicted next, `keep` left out; fewer if there are not so many."""
        kept = frozenset(keep)
        return list(islice((block for block in self._inactive if block not in kept), count))

    def begin_copy(self, block: CachedBlock) -> None:
        """Take an inactive block out: no longer findable, its slot unavailable until an `end_copy`."""
        del self._inactive[block]
        self._forget(block)
        self.in_copy_blocks += 1

    def end_copy(self) -> None:
        self.in_copy_blocks -= 1
        self.free_blocks += 1

    def evict(self, block: CachedBlock) -> None:
        """Drop an inactive block; its slot is free at once."""
        del self._inactive[block]
        self._forget(block)
        self.free_blocks += 1

    def reset(self) -> None:
        """Forget every inactive block and every copy under way; nothing may be active.

        Says nothing of it: one Cleared event tells more shortly what Removed events would.
        """
        assert self.used_blocks == self.in_copy_blocks, "blocks are in use"
        self._first.clear()
        self._later_copies.clear()
        self._inactive.clear()
        self.in_copy_blocks = 0
        self.free_blocks = self.capacity

    def _evict_oldest(self, count: int) -> None:
        inactive = self._inactive
        if self._later_copies or self.events is not None:
            for _ in range(count):
                self._forget(inactive.popitem(last=False)[0])
        else:
            # Hot: with one copy per identity and nobody listening an eviction is two dict operations.
            first = self._first
            pop = inactive.popitem
            for _ in range(count):
                del first[pop(last=False)[0].identity]
        self.free_blocks += count

    def _forget(self, block: CachedBlock) -> None:
        identity = block.identity
        later = self._later_copies.get(identity)
        if later is None:
            del self._first[identity]
            if self.events is not None:
                self.events.removed(identity)
            return
        if self._first[identity] is block:
            first = self._first[identity] = later.pop(0)
            if first.ref_count:
                self.activations += 1  # the identity's hit was an inactive copy and is an active one now
        else:
            later.remove(block)
        if not later:
            del self._later_copies[identity]
