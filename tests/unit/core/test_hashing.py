from __future__ import annotations

import subprocess
import sys
from array import array

import pytest

from mocker_core.hashing import block_identity, token_hash
from mocker_core.request import BlockIdentity
from tests.shared_cases import CHECKOUT_DIR

FIRST = 0x6A0F199214A3CA33
SECOND = 0xB623A3DBC5266FFC
OWN = 0x9DFEFA18F3387AC8


def test_identities_never_change_between_versions() -> None:
    first = block_identity(None, [1, 2, 3, 4])
    assert first == FIRST
    assert block_identity(first, [5, 6, 7, 0xFFFFFFFF]) == SECOND
    assert token_hash([1, 2, 3, 4]) == OWN


def test_identity_is_the_same_in_another_process_with_another_hash_seed() -> None:
    code = "from mocker_core.hashing import block_identity; print(block_identity(None, [1, 2, 3, 4]))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=CHECKOUT_DIR,
        env={"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) == FIRST


def test_identity_depends_on_the_parent_on_every_token_and_on_their_order() -> None:
    parent = block_identity(None, [9])
    identities = {
        block_identity(None, [1, 2]),
        block_identity(parent, [1, 2]),
        block_identity(None, [2, 1]),
        block_identity(None, [1, 3]),
        block_identity(None, [1, 2, 0]),
    }
    assert len(identities) == 5


def test_kind_of_sequence_makes_no_difference() -> None:
    assert (
        block_identity(None, (1, 2))
        == block_identity(None, [1, 2])
        == block_identity(None, array("I", [1, 2]))
    )


def test_identities_are_unsigned_64_bit() -> None:
    parent: BlockIdentity | None = None
    for token in range(200):
        parent = block_identity(parent, [token])
        assert 0 <= parent < 1 << 64


def test_token_outside_uint32_is_refused() -> None:
    with pytest.raises(OverflowError):
        block_identity(None, [1 << 32])
