"""Per-request view of the pool: computed prefix, allocation of slots, caching of full blocks.

Owns `BlockTable` (what one request holds). Knows token counts, never text or queues.
"""

from __future__ import annotations

from typing import NamedTuple

from mocker_core.kv.block_pool import BlockHandle, BlockPool
from mocker_core.request import BlockIdentity, BlockSequence


class PrefillCost(NamedTuple):
    """What the resident prefix saves, in tokens (engine.md section 3)."""

    cached_tokens: int
    active_cached_tokens: int


class BlockTable:
    """Blocks of one request: `cached` from the start of the sequence, then `private` ones."""

    __slots__ = ("cached", "identities", "private", "sequence")

    def __init__(self, sequence: BlockSequence) -> None:
        self.sequence = sequence
        self.identities: list[BlockIdentity] | None = None
        self.cached: list[BlockHandle] = []
        self.private = 0

    @property
    def num_blocks(self) -> int:
        return len(self.cached) + self.private

    def known_identities(self, count: int) -> list[BlockIdentity]:
        """At least the first `count` identities; the tokens of those blocks must exist."""
        identities = self.identities
        if identities is None:
            identities = self.identities = self.sequence.prompt_identities()
        while len(identities) < count:
            parent = identities[-1] if identities else None
            identities.append(self.sequence.extend(parent, len(identities)))
        return identities


class KVCacheManager:
    """Allocates, caches and frees the blocks of requests in one pool."""

    def __init__(self, pool: BlockPool, block_size: int, *, enable_prefix_caching: bool) -> None:
        self.pool = pool
        self.block_size = block_size
        self.enable_prefix_caching = enable_prefix_caching

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def prefill_cost(self, table: BlockTable, num_tokens: int, *, complete: bool) -> PrefillCost:
        """Tokens of the resident prefix of a sequence of `num_tokens`; the last token is recomputed unless
        complete.
        """
        if not self.enable_prefix_caching:
            return PrefillCost(0, 0)
        size = self.block_size
        full = num_tokens // size
        hits, active = self.pool.resident_prefix(table.known_identities(full), full)
        if not complete:
            most = (num_tokens - 1) // size
            hits = min(hits, most)
            active = min(active, most)
        return PrefillCost(hits * size, active * size)

    def prefix_for(self, table: BlockTable, count: int) -> list[BlockHandle]:
        """The resident blocks of the first `count` identities."""
        return self.pool.prefix_blocks(table.known_identities(count), count) if count else []

    def allocate(self, table: BlockTable, num_tokens: int, reuse: list[BlockHandle]) -> bool:
        """Cover `num_tokens`, taking `reuse` as the start of an empty table. False changes nothing."""
        fresh = self.blocks_for(num_tokens) - len(table.cached) - table.private - len(reuse)
        if fresh <= 0 and not reuse:
            return True
        if not self.pool.allocate(reuse, fresh):
            return False
        if reuse:
            table.cached = reuse
        table.private += fresh
        return True

    def cache_computed(self, table: BlockTable, computed_tokens: int) -> None:
        """Make every block that `computed_tokens` fills findable."""
        if not self.enable_prefix_caching:
            return
        full = computed_tokens // self.block_size
        held = len(table.cached)
        if full <= held:
            return
        identities = table.known_identities(full)
        parent = identities[held - 1] if held else None
        table.cached += self.pool.cache(identities[held:full], parent, table.sequence, held)
        table.private -= full - held

    def free(self, table: BlockTable) -> None:
        """Give everything back, last block first."""
        self.pool.release(table.cached, table.private)
        table.cached = []
        table.private = 0
