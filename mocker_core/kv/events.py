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


class KvEventLog:
    """Numbers events strictly upwards per rank; consecutive blocks stored together form one event."""

    def __init__(self) -> None:
        self._next_event_id = 0
        self._events: list[KvEvent] = []
        self._stored: list[StoredBlock] = []
        self._stored_parent: BlockIdentity | None = None
        self._stored_tier = StorageTier.DEVICE
        self._removed: list[BlockIdentity] = []
        self._removed_tier = StorageTier.DEVICE

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
        continues = self._stored and self._stored[-1].identity == parent and self._stored_tier is tier
        if not continues:
            self._close()
            self._stored_parent = parent
            self._stored_tier = tier
        self._stored.append(StoredBlock(identity, tokens))

    def removed(self, identity: BlockIdentity, tier: StorageTier = StorageTier.DEVICE) -> None:
        """The last copy of an identity left `tier`."""
        if self._stored or self._removed_tier is not tier:
            self._close()
            self._removed_tier = tier
        self._removed.append(identity)

    def cleared(self) -> None:
        self._close()
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
