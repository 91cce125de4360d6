"""INV-10: pool and manager behave as a naive model of dicts and lists, whatever the order of steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mocker_core.kv.block_pool import BlockPool
from mocker_core.kv.events import KvEventLog
from mocker_core.kv.manager import BlockTable, KVCacheManager
from mocker_core.kv.sequence import HashedSequence
from tests.harness.invariants import ResidentMirror
from tests.property.profiles import examples

Tokens = tuple[int, ...]


@dataclass(eq=False)
class NaiveBlock:
    """A block in use. `prefix` is all the tokens up to its end, which is what its identity stands for."""

    prefix: Tokens | None = None
    users: int = 1


@dataclass(eq=False)
class Holder:
    """One request: the real table and, beside it, the naive list of blocks."""

    tokens: Tokens
    table: BlockTable
    blocks: list[NaiveBlock] = field(default_factory=list)
    covered: int = 0
    computed: int = 0


class NaivePool:
    """Everything by looking through lists."""

    def __init__(self, capacity: int, size: int) -> None:
        self.free, self.size = capacity, size
        self.cached: list[NaiveBlock] = []  # in the order of caching
        self.unused: list[NaiveBlock] = []  # oldest first
        self.removed: list[Tokens] = []

    def copies(self, prefix: Tokens) -> list[NaiveBlock]:
        return [block for block in self.cached if block.prefix == prefix]

    def hits(self, tokens: Tokens) -> list[NaiveBlock]:
        found = []
        for end in range(self.size, len(tokens) + 1, self.size):
            copies = self.copies(tokens[:end])
            if not copies:
                break
            found.append(copies[0])
        return found

    def take(self, reuse: list[NaiveBlock], fresh: int) -> list[NaiveBlock] | None:
        if fresh > self.free + len([block for block in self.unused if block not in reuse]):
            return None
        for block in reuse:
            block.users += 1
            if block in self.unused:
                self.unused.remove(block)
        for _ in range(fresh):
            if self.free:
                self.free -= 1
                continue
            evicted = self.unused.pop(0)
            self.cached.remove(evicted)
            assert evicted.prefix is not None
            if not self.copies(evicted.prefix):
                self.removed.append(evicted.prefix)
        return reuse + [NaiveBlock() for _ in range(fresh)]

    def give_back(self, blocks: list[NaiveBlock]) -> None:
        for block in reversed(blocks):
            block.users -= 1
            if block.users == 0:
                if block.prefix is None:
                    self.free += 1
                else:
                    self.unused.append(block)


class PoolMachine(RuleBasedStateMachine):
    @initialize(
        capacity=st.integers(2, 10), size=st.integers(2, 3), caching=st.sampled_from([True, True, False])
    )
    def start(self, capacity: int, size: int, caching: bool) -> None:
        self.size, self.caching = size, caching
        self.log = KvEventLog()
        self.pool = BlockPool(capacity, self.log)
        self.kv = KVCacheManager(self.pool, size, enable_prefix_caching=caching)
        self.naive = NaivePool(capacity, size)
        self.holders: list[Holder] = []
        self.mirror = ResidentMirror()
        self.names: dict[Tokens, int] = {}

    # Two streams of which one changes after a while: prefixes are shared, and whole contents meet again.
    @rule(length=st.integers(1, 14), stream=st.sampled_from(["a", "b", "ab"]), complete=st.booleans())
    def open(self, length: int, stream: str, complete: bool) -> None:
        tokens = tuple(
            i + (1000 if stream == "b" or (stream == "ab" and i > 4) else 0) for i in range(length)
        )
        holder = Holder(tokens, BlockTable(HashedSequence(tokens, (), self.size)))
        hits = self.naive.hits(tokens) if self.caching else []
        active = [block for block in hits if block.users]
        most = length if complete else length - 1
        cost = self.kv.prefill_cost(holder.table, length, complete=complete)
        assert cost.cached_tokens == min(len(hits), most // self.size) * self.size
        assert cost.active_cached_tokens == min(len(active), most // self.size) * self.size
        count = cost.cached_tokens // self.size
        covered = min(length, cost.cached_tokens + 3)
        taken = self.naive.take(hits[:count], -(-covered // self.size) - count)
        reuse = self.kv.prefix_for(holder.table, count)
        assert self.kv.allocate(holder.table, covered, reuse) == (taken is not None)
        if taken is not None:
            holder.blocks, holder.covered, holder.computed = taken, covered, cost.cached_tokens
            self.holders.append(holder)

    @precondition(lambda self: self.holders)
    @rule(data=st.data(), more=st.integers(0, 5))
    def grow(self, data: st.DataObject, more: int) -> None:
        holder = data.draw(st.sampled_from(self.holders))
        covered = min(len(holder.tokens), holder.covered + more)
        fresh = -(-covered // self.size) - len(holder.blocks)
        taken = self.naive.take([], fresh)
        assert self.kv.allocate(holder.table, covered, []) == (taken is not None)
        if taken is not None:
            holder.blocks += taken
            holder.covered = covered

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def compute(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from(self.holders))
        holder.computed = data.draw(st.integers(holder.computed, holder.covered))
        self.kv.cache_computed(holder.table, holder.computed)
        if not self.caching:
            return
        for index in range(holder.computed // self.size):
            block = holder.blocks[index]
            if block.prefix is None:
                block.prefix = holder.tokens[: (index + 1) * self.size]
                self.naive.cached.append(block)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        holder = data.draw(st.sampled_from(self.holders))
        self.holders.remove(holder)
        self.kv.free(holder.table)
        self.naive.give_back(holder.blocks)
        assert holder.table.num_blocks == 0

    @invariant()
    def same_state(self) -> None:
        pool, naive = self.pool, self.naive
        assert pool.free_blocks == naive.free
        assert pool.inactive_blocks == len(naive.unused)
        assert pool.used_blocks == pool.capacity - naive.free - len(naive.unused)
        assert all(holder.table.num_blocks == len(holder.blocks) for holder in self.holders)
        events = self.log.take()
        self.mirror.feed(events)
        assert self.mirror.resident == set(pool.identities())
        for holder in self.holders:
            for index, block in enumerate(holder.table.cached):
                prefix = holder.tokens[: (index + 1) * self.size]
                identity = pool.identity_of(block)
                assert self.names.setdefault(prefix, identity) == identity
                assert pool.ref_count(block) == holder.blocks[index].users
        gone = [identity for event in events for identity in getattr(event, "identities", ())]
        assert gone == [self.names[prefix] for prefix in naive.removed]
        naive.removed.clear()
        prefixes = {block.prefix for block in naive.cached}
        assert set(pool.identities()) == {self.names[prefix] for prefix in prefixes if prefix is not None}


PoolMachine.TestCase.settings = examples(60, stateful_step_count=40)
test_pool_and_manager_behave_as_the_naive_model = PoolMachine.TestCase
