"""Collects a rank's KV events in order and joins neighbours (engine.md section 9)."""

from __future__ import annotations

from mocker_core.events import (
    BlocksCleared,
    BlocksRemoved,
    BlocksStored,
    KvEvent,
    StorageTier,
    StoredBlock,
)
from mocker_core.request import BlockIdentity, BlockSequence


class _Origin:
    """What a block's stored event said, and in how many places (tiers, links) the block is."""

    __slots__ = ("block", "parent", "places")

    def __init__(self, parent: BlockIdentity | None, block: StoredBlock) -> None:
        self.parent = parent
        self.block = block
        self.places = 0


class KvEventLog:
    """Numbers events strictly upwards per rank; consecutive blocks stored together form one event.

    With `remember`, for offload tiers, a block's parent and tokens are kept as long as it is anywhere, so
    that a lower tier can store it again by its identity alone.
    """

    def __init__(self, *, remember: bool = False) -> None:
        self._next_event_id = 0
        self._events: list[KvEvent] = []
        self._stored: list[StoredBlock] = []
        self._stored_parent: BlockIdentity | None = None
        self._stored_tier = StorageTier.DEVICE
        self._removed: list[BlockIdentity] = []
        self._removed_tier = StorageTier.DEVICE
        self._origins: dict[BlockIdentity, _Origin] | None = {} if remember else None

    def stored(
        self,
        identity: BlockIdentity,
        parent: BlockIdentity | None,
        sequence: BlockSequence | None,
        index: int,
        tier: StorageTier = StorageTier.DEVICE,
    ) -> None:
        """Block `index` of `sequence` became findable in `tier`."""
        tokens = None if sequence is None else sequence.block_tokens(index)
        block = StoredBlock(identity, tokens)
        if self._origins is not None:
            self._origins.setdefault(identity, _Origin(parent, block)).places += 1
        self._store(block, parent, tier)

    def stored_again(self, identity: BlockIdentity, tier: StorageTier) -> None:
        """A block that is somewhere else already became findable in `tier`."""
        assert self._origins is not None
        origin = self._origins[identity]
        origin.places += 1
        self._store(origin.block, origin.parent, tier)

    def hold(self, identity: BlockIdentity) -> None:
        """A block is on its way between tiers: remember it though it may be in none."""
        assert self._origins is not None
        self._origins[identity].places += 1

    def let_go(self, identity: BlockIdentity) -> None:
        """Undo one `hold` or one place; what is nowhere any more is forgotten."""
        assert self._origins is not None
        origin = self._origins[identity]
        origin.places -= 1
        if not origin.places:
            del self._origins[identity]

    def _store(self, block: StoredBlock, parent: BlockIdentity | None, tier: StorageTier) -> None:
        continues = self._stored and self._stored[-1].identity == parent and self._stored_tier is tier
        if not continues:
            self._close()
            self._stored_parent = parent
            self._stored_tier = tier
        self._stored.append(block)

    def removed(self, identity: BlockIdentity, tier: StorageTier = StorageTier.DEVICE) -> None:
        """The last copy of an identity left `tier`."""
        if self._stored or self._removed_tier is not tier:
            self._close()
            self._removed_tier = tier
        self._removed.append(identity)
        if self._origins is not None:
            self.let_go(identity)

    def cleared(self) -> None:
        """Every block of every tier is gone, and nothing is on its way."""
        self._close()
        if self._origins is not None:
            self._origins.clear()
        self._events.append(BlocksCleared(self._take_id()))

    def take(self) -> tuple[KvEvent, ...]:
        """Drain what was collected since the last call."""
        if not (self._events or self._stored or self._removed):
            return ()
        self._close()
        events = tuple(self._events)
        self._events.clear()
        return events

    def _close(self) -> None:
        if self._stored:
            blocks = tuple(self._stored)
            self._events.append(BlocksStored(self._take_id(), self._stored_parent, blocks, self._stored_tier))
            self._stored.clear()
        if self._removed:
            self._events.append(BlocksRemoved(self._take_id(), tuple(self._removed), self._removed_tier))
            self._removed.clear()

    def _take_id(self) -> int:
        event_id = self._next_event_id
        self._next_event_id += 1
        return event_id
