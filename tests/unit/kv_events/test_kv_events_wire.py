from __future__ import annotations

import msgspec
import pytest

from app.kv_events.wire import END_OF_REPLAY, Batch, BatchEncoder, sequence_bytes
from mocker_core.events import (
    BlocksCleared,
    BlocksRemoved,
    BlocksStored,
    KvEvent,
    StorageTier,
    StoredBlock,
)
from mocker_core.request import BlockIdentity

STORED = BlocksStored(
    0,
    BlockIdentity(7),
    (StoredBlock(BlockIdentity(2**64 - 1), (1, 2)), StoredBlock(BlockIdentity(9), (3, 4))),
)


def decoded(encoding: str, *events: KvEvent) -> object:
    payload = BatchEncoder(2, encoding).encode(Batch(0, 12.5, 3, events))
    return msgspec.msgpack.decode(payload)


def test_array_encoding_is_positional_with_the_tag_first() -> None:
    assert decoded("array", STORED, BlocksRemoved(1, (BlockIdentity(9),)), BlocksCleared(2)) == [
        12.5,
        [
            ["BlockStored", [2**64 - 1, 9], 7, [1, 2, 3, 4], 2, None, "GPU", None],
            ["BlockRemoved", [9], "GPU"],
            ["AllBlocksCleared"],
        ],
        3,
    ]


def test_map_encoding_names_the_fields_of_each_event_but_not_of_the_batch() -> None:
    assert decoded("map", STORED, BlocksRemoved(1, (BlockIdentity(9),)), BlocksCleared(2)) == [
        12.5,
        [
            {
                "type": "BlockStored",
                "block_hashes": [2**64 - 1, 9],
                "parent_block_hash": 7,
                "token_ids": [1, 2, 3, 4],
                "block_size": 2,
                "lora_id": None,
                "medium": "GPU",
                "lora_name": None,
                "extra_keys": [None, None],
                "group_idx": 0,
                "kv_cache_spec_kind": "full_attention",
            },
            {"type": "BlockRemoved", "block_hashes": [9], "medium": "GPU", "group_idx": 0},
            {"type": "AllBlocksCleared"},
        ],
        3,
    ]


@pytest.mark.parametrize(
    ("tier", "medium"),
    [(StorageTier.DEVICE, "GPU"), (StorageTier.HOST, "CPU"), (StorageTier.DISK, "STORAGE")],
)
def test_tier_has_vllms_word_as_medium(tier: StorageTier, medium: str) -> None:
    assert decoded("array", BlocksRemoved(0, (BlockIdentity(1),), tier)) == [
        12.5,
        [["BlockRemoved", [1], medium]],
        3,
    ]


def test_blocks_without_tokens_are_stored_with_none() -> None:
    event = BlocksStored(0, None, (StoredBlock(BlockIdentity(1)),))
    assert decoded("array", event) == [
        12.5,
        [["BlockStored", [1], None, [], 2, None, "GPU", None]],
        3,
    ]


def test_numbers_are_eight_bytes_big_endian_and_the_end_is_minus_one() -> None:
    assert sequence_bytes(258) == b"\0\0\0\0\0\0\1\2"
    assert int.from_bytes(END_OF_REPLAY, "big", signed=True) == -1
