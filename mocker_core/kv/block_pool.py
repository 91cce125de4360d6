"""The physical KV blocks of one rank: free, private, cached (active or inactive), in copy.

Owns reference counts, the LRU of inactive blocks and identity lookup (engine.md section 3). Knows
nothing of requests. Private blocks have no identity and are only a number. Counts always satisfy:
free + active + inactive + in copy = capacity, where active is every private, reserved or referenced
block.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NewType

from mocker_core.kv.events import KvEventLog
from mocker_core.request import BlockIdentity, BlockSequence

BlockHandle = NewType("BlockHandle", int)
"""One physical copy of an identity: the identity itself for a copy that was cached while there was no
other of that number, else a negative alias. So a cached block is no object, and whole prefixes are cached
and looked up by dict operations.
"""


# Entries of the LRU list that may be stale before it is tidied, beyond one for each that is not.
_STALE_ENTRIES = 1024


class BlockPool:
    """All-or-nothing allocation with prefix reuse. `events` is None when nobody wants KV events."""

    def __init__(self, capacity: int, events: KvEventLog | None = None) -> None:
        self.capacity = capacity
        self.events = events
        self.free_blocks = capacity
        self.inactive_blocks = 0
        self.in_copy_blocks = 0
        # Grows whenever a block may have become active: bounds how much a stale prefill cost can have
        # improved.
        self.activations = 0
        # Every resident copy: its references (reservations and parked requests count as such), or, while it
        # is inactive, minus the number of the segment that it was released with.
        self._state: dict[BlockHandle, int] = {}
        # The LRU list as segments, oldest first: blocks released together, the oldest at the end. An entry
        # counts only while the block's state names its segment; the others were used or dropped since.
        self._segments: deque[tuple[int, list[BlockHandle]]] = deque()
        self._segment_entries = 0
        self._next_segment = 1
        # Only for identities with several copies, or one under an alias: the resident ones, oldest first.
        self._copies: dict[BlockIdentity, list[BlockHandle]] = {}
        self._alias_identity: dict[BlockHandle, BlockIdentity] = {}
        self._next_alias = -1

    @property
    def used_blocks(self) -> int:
        """Active blocks as metrics show them: private, reserved, referenced and in copy."""
        return self.capacity - self.free_blocks - self.inactive_blocks

    def lookup(self, identity: BlockIdentity) -> BlockHandle | None:
        """The copy cached first among those resident."""
        copies = self._copies.get(identity)
        if copies is not None:
            return copies[0]
        handle = BlockHandle(identity)
        return handle if handle in self._state else None

    def identity_of(self, block: BlockHandle) -> BlockIdentity:
        return self._alias_identity.get(block, BlockIdentity(block))

    def ref_count(self, block: BlockHandle) -> int:
        """References of a resident block; 0 while it is inactive."""
        return max(0, self._state[block])

    def identities(self) -> Iterator[BlockIdentity]:
        """Every resident identity once."""
        return iter(dict.fromkeys(self.identity_of(block) for block in self._state))

    def resident_prefix(self, identities: Sequence[BlockIdentity], limit: int) -> tuple[int, int]:
        """(hits, active hits) of the longest resident prefix of the first `limit` identities."""
        hits = active = 0
        state = self._state
        copies = self._copies
        for identity in identities:
            if hits == limit:
                break
            block = copies[identity][0] if identity in copies else identity
            references = state.get(block)  # type: ignore[arg-type]  # a cast would cost a call per block
            if references is None:
                break
            hits += 1
            if references > 0:
                active += 1
        return hits, active

    def prefix_blocks(self, identities: Sequence[BlockIdentity], count: int) -> list[BlockHandle]:
        """The first `count` blocks of a prefix that `resident_prefix` found."""
        copies = self._copies
        return [
            copies[identity][0] if identity in copies else BlockHandle(identity)
            for identity in identities[:count]
        ]

    def shortfall(self, reuse: Sequence[BlockHandle], fresh: int) -> int:
        """How many blocks are missing to take `reuse` and `fresh` others; 0 or less if it can be met."""
        state = self._state
        inactive_reused = sum(1 for block in reuse if state[block] < 0)
        return fresh + inactive_reused - self.free_blocks - self.inactive_blocks

    def allocate(self, reuse: Sequence[BlockHandle], fresh: int) -> bool:
        """Take a reference on each of `reuse` and `fresh` private blocks, or change nothing and return
        False.
        """
        if reuse:
            if self.shortfall(reuse, fresh) > 0:
                return False
            self.reference(reuse)
        elif fresh > self.free_blocks + self.inactive_blocks:
            return False
        missing = fresh - self.free_blocks
        if missing > 0:
            self._evict_oldest(missing)
        self.free_blocks -= fresh
        return True

    def reference(self, blocks: Sequence[BlockHandle]) -> None:
        """Pin cached blocks: one reference each."""
        state = self._state
        for block in blocks:
            references = state[block]
            if references > 0:
                state[block] = references + 1
            else:
                state[block] = 1
                self.inactive_blocks -= 1
                self.activations += 1

    def cache(
        self,
        identities: Sequence[BlockIdentity],
        parent: BlockIdentity | None,
        sequence: BlockSequence,
        start: int,
    ) -> list[BlockHandle]:
        """Turn private blocks into cached ones with these identities; block `start` is the first.

        An identity that is resident already gets a further copy, and is not stored again.
        """
        state = self._state
        self.activations += len(identities)
        if self.events is None and not self._copies and state.keys().isdisjoint(identities):
            # Hot: new content, nobody listening.
            state.update(dict.fromkeys(identities, 1))  # type: ignore[arg-type]  # each is its own handle
            return list(identities)  # type: ignore[arg-type]
        blocks: list[BlockHandle] = []
        for identity in identities:
            block = self._new_copy(identity)
            if identity not in self._copies and self.events is not None:
                self.events.stored(identity, parent, sequence, start + len(blocks))
            state[block] = 1
            parent = identity
            blocks.append(block)
        return blocks

    def release(self, blocks: Sequence[BlockHandle], private: int) -> None:
        """Give back a request's blocks, last to first, so that a leaf is evicted before its parent."""
        self.free_blocks += private
        state = self._state
        number = self._next_segment
        # Hot: blocks that nobody shares go as one.
        if blocks and set(map(state.__getitem__, blocks)) == {1}:
            freed = list(blocks)
            state.update(dict.fromkeys(freed, -number))
        else:
            freed = []
            for block in blocks:
                references = state[block] - 1
                state[block] = references or -number
                if not references:
                    freed.append(block)
        if freed:
            self._next_segment += 1
            self._segments.append((number, freed))
            self._segment_entries += len(freed)
            self.inactive_blocks += len(freed)
            if self._segment_entries > 2 * self.inactive_blocks + _STALE_ENTRIES:
                self._drop_stale_entries()

    def oldest_inactive(self, count: int, keep: Sequence[BlockHandle] = ()) -> list[BlockHandle]:
        """The `count` blocks to be evicted next, `keep` left out; fewer if there are not so many."""
        kept = frozenset(keep)
        return list(islice((block for block in self._inactive_in_order() if block not in kept), count))

    def begin_copy(self, block: BlockHandle) -> None:
        """Take an inactive block out: no longer findable, its slot unavailable until an `end_copy`."""
        self._forget(block)
        self.inactive_blocks -= 1
        self.in_copy_blocks += 1

    def end_copy(self) -> None:
        self.in_copy_blocks -= 1
        self.free_blocks += 1

    def evict(self, block: BlockHandle) -> None:
        """Drop an inactive block; its slot is free at once."""
        self._forget(block)
        self.inactive_blocks -= 1
        self.free_blocks += 1

    def reset(self) -> None:
        """Forget every inactive block and every copy under way; nothing may be active.

        Says nothing of it: one Cleared event tells more shortly what Removed events would.
        """
        assert self.used_blocks == self.in_copy_blocks, "blocks are in use"
        self._state.clear()
        self._segments.clear()
        self._segment_entries = 0
        self.inactive_blocks = 0
        self._copies.clear()
        self._alias_identity.clear()
        self.in_copy_blocks = 0
        self.free_blocks = self.capacity

    def _evict_oldest(self, count: int) -> None:
        # Hot: with one copy per identity and nobody listening an eviction is two dict operations.
        plain = not self._copies and self.events is None
        state = self._state
        self.free_blocks += count
        self.inactive_blocks -= count
        while count:
            number, blocks = self._segments[0]
            held = len(blocks)
            while blocks and count:
                block = blocks.pop()
                if state.get(block) == -number:
                    count -= 1
                    if plain:
                        del state[block]
                    else:
                        self._forget(block)
            self._segment_entries -= held - len(blocks)
            if not blocks:
                self._segments.popleft()

    def _inactive_in_order(self) -> Iterator[BlockHandle]:
        """Every inactive block, the next to be evicted first."""
        state = self._state
        for number, blocks in self._segments:
            for block in reversed(blocks):
                if state.get(block) == -number:
                    yield block

    def _drop_stale_entries(self) -> None:
        state = self._state
        segments = (
            (number, [block for block in blocks if state.get(block) == -number])
            for number, blocks in self._segments
        )
        self._segments = deque(segment for segment in segments if segment[1])
        self._segment_entries = self.inactive_blocks

    def _new_copy(self, identity: BlockIdentity) -> BlockHandle:
        """A handle for one more copy; an identity with several, or only an alias, is listed in `_copies`."""
        handle = BlockHandle(identity)
        copies = self._copies.get(identity)
        if handle not in self._state:
            if copies is not None:
                copies.append(handle)
            return handle
        alias = BlockHandle(self._next_alias)
        self._next_alias -= 1
        self._alias_identity[alias] = identity
        if copies is None:
            copies = self._copies[identity] = [handle]
        copies.append(alias)
        return alias

    def _forget(self, block: BlockHandle) -> None:
        """A copy is gone; its identity is removed with its last one."""
        del self._state[block]
        identity = self._alias_identity.pop(block, BlockIdentity(block))
        copies = self._copies.get(identity)
        if copies is None:
            if self.events is not None:
                self.events.removed(identity)
            return
        was_first = copies[0] == block
        copies.remove(block)
        if was_first and copies and self._state[copies[0]] > 0:
            self.activations += 1  # the identity's hit was an inactive copy and is an active one now
        if not copies:
            del self._copies[identity]
            if self.events is not None:
                self.events.removed(identity)
        elif copies == [BlockHandle(identity)]:
            del self._copies[identity]
