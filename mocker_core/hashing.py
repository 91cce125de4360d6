"""The only place where a block's identity is hashed: a 64-bit chain over (parent identity, own tokens)."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b

from mocker_core.request import BlockIdentity

_ROOT_PARENT = b"\0" * 8


def block_identity(parent: BlockIdentity | None, tokens: Sequence[int]) -> BlockIdentity:
    """Identity of a full block. `tokens` are uint32 ids; `parent` is None for a sequence's first block.

    The same tokens after the same parent give the same identity in every process and version of
    Python; anything else differs but for 64-bit collisions.
    """
    prefix = _ROOT_PARENT if parent is None else parent.to_bytes(8, "little")
    digest = blake2b(array("I", tokens).tobytes(), digest_size=8, key=prefix).digest()
    return BlockIdentity(int.from_bytes(digest, "little"))


def salted_root(salt: bytes) -> BlockIdentity | None:
    """The parent of a sequence's first block: sequences with different salts share no identity."""
    if not salt:
        return None
    return BlockIdentity(int.from_bytes(blake2b(salt, digest_size=8, key=b"salt").digest(), "little"))


def token_hash(tokens: Sequence[int]) -> int:
    """64-bit hash of a block's own tokens alone, as KV events carry it."""
    digest = blake2b(array("I", tokens).tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
