"""vLLM's messages: the msgpack shapes of a batch of KV events and the frames around it.

Pure functions of values; facts and versions are in docs/kv-events.md. Must not know sockets or threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from mocker_core.events import BlocksCleared, BlocksRemoved, BlocksStored, KvEvent, StorageTier

# vLLM's words for a tier.
MEDIUMS = {StorageTier.DEVICE: "GPU", StorageTier.HOST: "CPU", StorageTier.DISK: "STORAGE"}
# The sequence number of the message that ends a replay.
END_OF_REPLAY = b"\xff" * 8


class Batch(NamedTuple):
    """One message to be: the events of one rank that became visible together."""

    sequence: int
    time_s: float
    dp_rank: int
    events: Sequence[KvEvent]


class ArrayBlockStored(msgspec.Struct, array_like=True, tag="BlockStored", gc=False, frozen=True):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str
    lora_name: str | None


class ArrayBlockRemoved(msgspec.Struct, array_like=True, tag="BlockRemoved", gc=False, frozen=True):
    block_hashes: list[int]
    medium: str


class ArrayAllBlocksCleared(msgspec.Struct, array_like=True, tag="AllBlocksCleared", gc=False, frozen=True):
    pass


class MapBlockStored(msgspec.Struct, tag="BlockStored", gc=False, frozen=True):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str
    lora_name: str | None
    extra_keys: list[None]
    group_idx: int = 0
    kv_cache_spec_kind: str = "full_attention"


class MapBlockRemoved(msgspec.Struct, tag="BlockRemoved", gc=False, frozen=True):
    block_hashes: list[int]
    medium: str
    group_idx: int = 0


class MapAllBlocksCleared(msgspec.Struct, tag="AllBlocksCleared", gc=False, frozen=True):
    pass


class KVEventBatch(msgspec.Struct, array_like=True, gc=False, frozen=True):
    ts: float
    events: list[Any]
    data_parallel_rank: int


class BatchEncoder:
    """Encodes batches of one server; `encoding` is `array` or `map`. Belongs to one thread."""

    def __init__(self, block_size: int, encoding: str) -> None:
        self._block_size = block_size
        self._event: Callable[[KvEvent], msgspec.Struct] = (
            self._map_event if encoding == "map" else self._array_event
        )
        self._encoder = msgspec.msgpack.Encoder()

    def encode(self, batch: Batch) -> bytes:
        """The payload: [seconds since 1970, events, rank]."""
        events = [self._event(event) for event in batch.events]
        return self._encoder.encode(KVEventBatch(batch.time_s, events, batch.dp_rank))

    def _array_event(self, event: KvEvent) -> msgspec.Struct:
        match event:
            case BlocksStored():
                hashes, tokens = _stored(event)
                medium = MEDIUMS[event.tier]
                return ArrayBlockStored(hashes, event.parent, tokens, self._block_size, None, medium, None)
            case BlocksRemoved():
                return ArrayBlockRemoved(list(event.identities), MEDIUMS[event.tier])
            case BlocksCleared():
                return ArrayAllBlocksCleared()

    def _map_event(self, event: KvEvent) -> msgspec.Struct:
        match event:
            case BlocksStored():
                hashes, tokens = _stored(event)
                keys: list[None] = [None] * len(hashes)
                medium = MEDIUMS[event.tier]
                return MapBlockStored(
                    hashes, event.parent, tokens, self._block_size, None, medium, None, keys
                )
            case BlocksRemoved():
                return MapBlockRemoved(list(event.identities), MEDIUMS[event.tier])
            case BlocksCleared():
                return MapAllBlocksCleared()


def sequence_bytes(sequence: int) -> bytes:
    """A message's number as its frame has it: 8 bytes, big-endian."""
    return sequence.to_bytes(8, "big")


def _stored(event: BlocksStored) -> tuple[list[int], list[int]]:
    """Hashes of the blocks and the tokens of all of them, one after the other (none where unknown)."""
    hashes: list[int] = []
    tokens: list[int] = []
    for block in event.blocks:
        hashes.append(block.identity)
        if block.token_ids is not None:
            tokens += block.token_ids
    return hashes, tokens
