"""The offload tiers inside the core: room by copying down, prefixes back by swap-in (engine.md section 8).

Owns the parked requests of one rank and ties `offload.tiers` to the device's pool and the scheduler.
Exists only if offload is on.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from mocker_core.kv.block_pool import BlockHandle
from mocker_core.kv.manager import PrefillCost
from mocker_core.metrics import OffloadStats
from mocker_core.offload.tiers import Load, LowerTiers
from mocker_core.request import BlockIdentity
from mocker_core.sched.scheduler import Parking
from mocker_core.sched.state import RequestStatus, SchedRequest

if TYPE_CHECKING:
    from mocker_core.engine.core import EngineCore


class OffloadOps:
    """The `SwapIn` of the scheduler. Every entry of the core that is told the time calls `tick` first."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._pool = core.pool
        self._block_size = core.args.block_size
        self._now_ms = 0.0
        self._loads: dict[SchedRequest, Load] = {}
        self._parked: dict[Load, SchedRequest] = {}
        self.tiers = LowerTiers(core.args, core.events)
        self.swap_ins_total = 0

    @property
    def num_parked(self) -> int:
        return len(self._parked)

    def make_room(
        self, fresh: int, reuse: list[BlockHandle], now_ms: float, *, all_or_nothing: bool = False
    ) -> bool:
        """Free slots for `fresh` blocks beside `reuse` by copying inactive ones down, oldest first.

        False: wait for a copy. Copies under way count, so asking again starts no more of them. True: there
        is nothing to wait for; if there is no room even so, the allocation will say it. With
        `all_or_nothing` no copy is started for what copies alone can't meet.
        """
        pool = self._pool
        missing = fresh - pool.free_blocks
        if missing <= 0:
            return True
        kept = [block for block in reuse if not pool.ref_count(block)]
        evictable = pool.inactive_blocks - len(kept)
        if all_or_nothing and missing > evictable + pool.in_copy_blocks:
            return True
        for block in pool.oldest_inactive(max(0, missing - pool.in_copy_blocks), kept):
            identity = pool.identity_of(block)
            if self.tiers.in_g2_or_on_the_way(identity):
                self.tiers.touch(identity)
                pool.evict(block)
            else:
                self.tiers.copy_out(identity, now_ms)
                pool.begin_copy(block)
        self.tick(now_ms)  # an instant link is done already
        return fresh <= pool.free_blocks or not pool.in_copy_blocks

    def park(self, request: SchedRequest, cost: PrefillCost, now_ms: float) -> Parking:
        """Take a waiting request out of the queue if the tiers hold blocks just after its device prefix.

        Its prefix is pinned and its target slots are taken at once; `tick` puts it back when all has arrived.
        """
        kv = self._core.kv
        hits = cost.cached_tokens // self._block_size
        wanted = self._lower_run(request, hits)
        if not wanted:
            return Parking.NOT_NEEDED
        reuse = kv.prefix_for(request.table, hits)
        if not self.make_room(len(wanted), reuse, now_ms, all_or_nothing=True):
            return Parking.MUST_WAIT
        # Making room may have pushed some of them out again.
        wanted = self._lower_run(request, hits)
        blocks = hits + len(wanted)
        if not wanted or not kv.allocate(request.table, blocks * self._block_size, reuse):
            return Parking.NOT_NEEDED
        self._core.scheduler.waiting.remove(request)
        request.status = RequestStatus.WAITING_FOR_REMOTE_KVS
        load = self.tiers.start_load(wanted, now_ms)
        self._loads[request] = load
        self._parked[load] = request
        self.tick(now_ms)
        return Parking.PARKED

    def unpark(self, request: SchedRequest) -> None:
        """A parked request is dropped: stop its swap-in. Its device blocks are the caller's to free."""
        load = self._loads.pop(request)
        del self._parked[load]
        self.tiers.cancel_load(load, self._now_ms)

    def tick(self, now_ms: float) -> None:
        """Let every transfer that is due by `now_ms` end: free its slot, or bring its request back."""
        self._now_ms = max(self._now_ms, now_ms)
        ended = self.tiers.tick(now_ms)
        if ended.freed_slots:
            for _ in range(ended.freed_slots):
                self._pool.end_copy()
            self._core.scheduler.capacity_generation += 1
        for load in ended.loaded:
            self._bring_back(self._parked.pop(load))

    def clear(self) -> None:
        """Forget everything below the device. Nothing may be parked."""
        self.tiers.clear()

    def stats(self) -> OffloadStats:
        return self.tiers.stats(parked_requests=self.num_parked, swap_ins_total=self.swap_ins_total)

    def _bring_back(self, request: SchedRequest) -> None:
        """The blocks are there: cache them, and let the request compete for its admission again.

        It gives up its pins: requests that waited with blocks in their hands could lock each other out.
        """
        del self._loads[request]
        core = self._core
        core.kv.cache_computed(request.table, request.table.num_blocks * self._block_size)
        core.kv.free(request.table)
        request.status = RequestStatus.WAITING
        core.scheduler.waiting.put_front(request)
        core.scheduler.capacity_generation += 1
        self.swap_ins_total += 1

    def _lower_run(self, request: SchedRequest, hits: int) -> list[BlockIdentity]:
        """The identities just after the device prefix that are below and not on the device.

        The last token must be recomputed, so its block is not fetched unless the request is complete.
        """
        tokens = request.num_tokens if request.is_complete else request.num_tokens - 1
        limit = tokens // self._block_size
        run: list[BlockIdentity] = []
        for identity in islice(request.table.known_identities(limit), hits, limit):
            if self._pool.lookup(identity) is not None or not self.tiers.is_findable(identity):
                break
            run.append(identity)
        return run
