"""The laws of docs/invariants.md that hold between any two steps of a core, as assertions.

Call `assert_invariants(core)` after every step and `assert_drained(core)` at the end of a test. A
`ResidentMirror` rebuilds the resident identities from KV events alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from mocker_core.engine.core import EngineCore
from mocker_core.events import BlocksRemoved, BlocksStored, KvEvent, StorageTier
from mocker_core.request import BlockIdentity
from mocker_core.sched.state import RequestStatus, SchedRequest


def assert_invariants(core: EngineCore) -> None:
    """INV-1 to INV-5 and INV-8; raises AssertionError naming what broke."""
    _assert_conservation(core)
    _assert_one_queue_each(core)
    _assert_allocated_covers_computed(core)
    _assert_cohort_sums(core)


def assert_drained(core: EngineCore) -> None:
    """INV-6: with everything ended nothing is held, queued or remembered."""
    assert_invariants(core)
    assert core.is_empty()
    assert not core.requests, f"requests never ended: {sorted(core.requests)}"
    assert core.pool.used_blocks == 0, f"{core.pool.used_blocks} blocks leaked"
    assert core.next_deadline_ms() is None
    metrics = core.metrics()
    assert (metrics.running_requests, metrics.waiting_requests, metrics.active_decode_blocks) == (0, 0, 0)


def concrete_computed(request: SchedRequest) -> int:
    """Tokens with KV; a member of the decode cohort has all but its newest one."""
    return request.computed if request.cohort is None else request.num_tokens - 1


def _assert_conservation(core: EngineCore) -> None:
    """INV-1, INV-2: every block is in exactly one state, and references are what requests hold."""
    pool = core.pool
    held = Counter(block for request in core.requests.values() for block in request.table.cached)
    private = sum(request.table.private for request in core.requests.values())
    assert all(request.table.private >= 0 for request in core.requests.values())
    for block, holders in held.items():
        references, identity = pool.ref_count(block), pool.identity_of(block)
        assert references == holders, f"block {identity}: {references} references, {holders} held"
        assert pool.lookup(identity) is not None, f"block {identity} is held but not findable"
    assert pool.free_blocks >= 0
    assert pool.in_copy_blocks >= 0
    total = pool.free_blocks + pool.inactive_blocks + private + len(held) + pool.in_copy_blocks
    assert total == pool.capacity, f"{total} blocks of {pool.capacity} are accounted for"
    assert pool.used_blocks == private + len(held) + pool.in_copy_blocks
    if not core.args.enable_prefix_caching:
        assert not held
        assert not list(pool.identities())


def _assert_one_queue_each(core: EngineCore) -> None:
    """INV-3: each live request is in exactly one place, and each place knows its own."""
    scheduler = core.scheduler
    waiting, running = list(scheduler.waiting), list(scheduler.running())
    assert len(waiting) == len(set(waiting)) == len(scheduler.waiting)
    assert len(running) == len(set(running)) == scheduler.num_running
    assert not set(waiting) & set(running), "a request waits and runs"
    assert {r.request_id for r in [*waiting, *running]} <= core.requests.keys(), "an ended request is queued"
    assert all(request.status is RequestStatus.WAITING for request in waiting)
    assert all(request.status is RequestStatus.RUNNING for request in running)
    assert all(request.status is not RequestStatus.FINISHED for request in core.requests.values())
    elsewhere = [r for r in core.requests.values() if r not in scheduler.waiting and r not in set(running)]
    held = [request for request in elsewhere if request.status is RequestStatus.HELD]
    parked = [r for r in elsewhere if r.status is RequestStatus.WAITING_FOR_REMOTE_KVS]
    destinations = [r for r in elsewhere if r not in held and r not in parked]
    assert all(request.destination_of is not None for request in destinations), "a request is in no queue"
    assert len(held) == core.handoffs.num_held_sources
    assert len(destinations) == core.handoffs.num_waiting_destinations
    limit = core.args.max_num_seqs
    assert limit is None or scheduler.num_running <= limit
    counted = core.metrics().waiting_requests
    assert counted == len(waiting) + len(destinations) + len(parked)


def _assert_allocated_covers_computed(core: EngineCore) -> None:
    """INV-4; and what the cache holds of a request is computed."""
    size = core.args.block_size
    for request in core.requests.values():
        computed = concrete_computed(request)
        assert computed <= request.num_tokens
        assert request.table.num_blocks * size >= computed, f"{request.request_id}: computed without a block"
        assert request.num_generated <= max(0, request.limit)


def _assert_cohort_sums(core: EngineCore) -> None:
    """INV-8: what the cohort sums up without looking is what its members say."""
    cohort = core.scheduler.cohort
    lengths = [request.num_tokens for request in cohort.members]
    assert cohort.sum_tokens == sum(lengths)
    assert cohort.sum_squares == sum(length * length for length in lengths)
    orders = [request.run_order for request in core.scheduler.running()]
    assert orders == sorted(orders), "running order is not the order of admission"


class ResidentMirror:
    """INV-7: what a consumer of the KV events believes to be resident on the device."""

    def __init__(self) -> None:
        self.resident: set[BlockIdentity] = set()
        self.last_event_id = -1

    def feed(self, events: Iterable[KvEvent]) -> None:
        """Apply events in order; an event that makes no sense is an AssertionError."""
        for event in events:
            assert event.event_id > self.last_event_id, "event ids must rise strictly"
            self.last_event_id = event.event_id
            if isinstance(event, BlocksStored):
                self._store(event)
            elif isinstance(event, BlocksRemoved):
                if event.tier is StorageTier.DEVICE:
                    assert self.resident.issuperset(event.identities), "removed what was not stored"
                    self.resident.difference_update(event.identities)
            else:
                self.resident.clear()

    def check(self, core: EngineCore) -> None:
        assert self.resident == set(core.pool.identities())

    def _store(self, event: BlocksStored) -> None:
        if event.tier is not StorageTier.DEVICE:
            return
        identities = [block.identity for block in event.blocks]
        assert self.resident.isdisjoint(identities), "stored twice"
        assert event.parent is None or event.parent in self.resident, "the parent is not resident"
        self.resident.update(identities)
