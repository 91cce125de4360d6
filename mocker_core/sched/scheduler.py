"""Decides one pass: running requests first, then waiting ones (engine.md 4.1-4.3).

Owns the running order and the waiting queue. Knows nothing of time, prices or output; `engine.core`
prices the pass and commits it. Running requests are kept in two parts that together are the running
order: the decode cohort (advanced as one) and the tail (looked at one by one).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Protocol

from mocker_core.engine_args import MockEngineArgs, PreemptionMode, WorkerType
from mocker_core.events import AdmissionEvent
from mocker_core.kv.block_pool import BlockHandle
from mocker_core.kv.manager import KVCacheManager, PrefillCost
from mocker_core.sched.cohort import DecodeCohort
from mocker_core.sched.pass_state import Given, PassState
from mocker_core.sched.policy import Policy
from mocker_core.sched.queue import WaitingQueue
from mocker_core.sched.state import RequestStatus, SchedRequest

_UNLIMITED = 1 << 62


class Scheduled(Enum):
    """Outcome of scheduling one request."""

    GIVEN = "given"
    BLOCKED = "blocked"
    SELF_PREEMPTED = "self_preempted"
    SKIPPED = "skipped"


class Parking(Enum):
    """Whether a waiting request went to fetch its prefix from a lower tier."""

    NOT_NEEDED = "not_needed"
    PARKED = "parked"
    MUST_WAIT = "must_wait"  # copies must end before its blocks have room


class SwapIn(Protocol):
    """What the scheduler sees of the offload tiers (section 8); None when offload is off."""

    def make_room(self, fresh: int, reuse: list[BlockHandle], now_ms: float) -> bool:
        """Start the copies that `fresh` blocks need. False: the caller must wait for a copy to end."""

    def park(self, request: SchedRequest, cost: PrefillCost, now_ms: float) -> Parking:
        """Start a swap-in if the prefix goes on in a lower tier; PARKED: it is out of the queue."""


class Scheduler:
    """One rank's scheduler. `preemptions_total` only grows; `capacity_generation` counts capacity changes."""

    def __init__(self, args: MockEngineArgs, kv: KVCacheManager, policy: Policy) -> None:
        self.kv = kv
        self.policy = policy
        self.offload: SwapIn | None = None
        self.waiting = WaitingQueue()
        self.cohort = DecodeCohort(args.block_size)
        self.tail: list[SchedRequest] = []
        self.preemptions_total = 0
        self.capacity_generation = 0
        self._args = args
        self._block_size = args.block_size
        self._token_budget = args.max_num_batched_tokens or _UNLIMITED
        self._max_num_seqs = args.max_num_seqs or _UNLIMITED
        self._run_order = 0

    @property
    def num_running(self) -> int:
        return len(self.cohort.members) + len(self.tail)

    @property
    def has_room(self) -> bool:
        return len(self.cohort.members) + len(self.tail) < self._max_num_seqs

    def running(self) -> Iterator[SchedRequest]:
        """Every running request, in running order."""
        yield from self.cohort.members
        yield from self.tail

    def schedule(self, now_ms: float, *, only_in_place: bool) -> PassState:
        """Decide one pass. `only_in_place`: a destination is pending, so only KV in place may be admitted."""
        this_pass = PassState(now_ms, self._token_budget)
        self._schedule_running(this_pass)
        if self.waiting:
            self._schedule_waiting(this_pass, only_in_place)
        return this_pass

    def prices_prefill(self, request: SchedRequest) -> bool:
        """On a decode worker prefill costs nothing, except for a local request."""
        return request.request.local or self._args.worker_type is not WorkerType.DECODE

    def remove_running(self, request: SchedRequest) -> None:
        """Take a request out of the running order; its blocks stay."""
        if request.cohort is not None:
            self.cohort.leave(request)
        else:
            self.tail.remove(request)

    def preempt_all(self, now_ms: float) -> int:
        """Between two passes: put every running request back to the front, in running order."""
        no_pass = PassState(now_ms, 0)
        for request in reversed(list(self.running())):
            self._preempt(request, no_pass)
        return len(no_pass.preempted)

    def _schedule_running(self, this_pass: PassState) -> None:
        cohort = self.cohort
        if len(cohort.members) > this_pass.budget:
            self._dissolve_cohort(this_pass, given=0)
        elif cohort.members:
            self._advance_cohort(this_pass)
        tail = self.tail
        while this_pass.index < len(tail) and this_pass.budget > 0:
            outcome = self._schedule_one(tail[this_pass.index], 0, [], this_pass)
            if outcome is Scheduled.BLOCKED:
                return
            if outcome is not Scheduled.SELF_PREEMPTED:
                this_pass.index += 1

    def _advance_cohort(self, this_pass: PassState) -> None:
        """One token for each member; only those at a block boundary are looked at."""
        cohort = self.cohort
        size = self._block_size
        for request in cohort.take_blocks_due():
            if request.cohort is not cohort:
                continue  # preempted by an earlier one
            tokens = request.num_tokens
            if tokens > request.table.num_blocks * size:
                outcome = self._try_allocate(request, tokens, [], this_pass)
                if outcome is Scheduled.BLOCKED and self.policy.preemption_mode is PreemptionMode.LIFO:
                    # Victims come from the end of the order, which has not had its token yet: the cohort
                    # stays whole.
                    outcome = self._allocate(request, tokens, [], this_pass)
                    if outcome is Scheduled.SELF_PREEMPTED:
                        continue
                if outcome is not Scheduled.GIVEN:
                    # It can't go on as one: the tail loop goes on at this request, one by one.
                    before = list(cohort.members).index(request)
                    self._dissolve_cohort(this_pass, given=before)
                    this_pass.index = before
                    return
            self.kv.cache_computed(request.table, tokens)
            # Next: the first token of the next block, or the one that fills this block.
            cohort.watch_block(request, -tokens % size or 1)
        this_pass.cohort_given = True
        this_pass.budget -= len(cohort.members)

    def _dissolve_cohort(self, this_pass: PassState, *, given: int) -> None:
        """Make every member concrete at the front of the tail; the first `given` have had their token."""
        members = list(self.cohort.members)
        for position, request in enumerate(members):
            self.cohort.leave(request)
            if position < given:
                request.computed += 1
                this_pass.give(request, Given(1, request.num_prompt_tokens, 0), priced=False)
        self.tail[:0] = members

    def _schedule_waiting(self, this_pass: PassState, only_in_place: bool) -> None:
        waiting = self.waiting
        while not this_pass.preempted and self.has_room:
            request = waiting.first_in_place() if only_in_place else waiting.head()
            if request is None:
                return
            if self._is_rejected(request):
                waiting.remove(request)
                request.status = RequestStatus.FINISHED
                this_pass.rejected.append(request)
                continue
            cached = 0
            reuse: list[BlockHandle] = []
            if not request.kv_in_place:
                cost = self._admissible_cost(request)
                if cost is None:
                    if self.num_running or waiting.first_in_place() is None:
                        return
                    # Nobody runs, and what the head lacks may be held by those behind it whose KV is in
                    # place: without them it would wait for ever.
                    only_in_place = True
                    continue
                if self.offload is not None:
                    parking = self.offload.park(request, cost, this_pass.now_ms)
                    if parking is Parking.PARKED:
                        continue
                    if parking is Parking.MUST_WAIT:
                        return
                cached = cost.cached_tokens
                reuse = self.kv.prefix_for(request.table, cached // self._block_size)
            if not self._admit(request, cached, reuse, this_pass):
                return

    def _admit(
        self, request: SchedRequest, cached: int, reuse: list[BlockHandle], this_pass: PassState
    ) -> bool:
        """Schedule a waiting request; False ends the phase."""
        outcome = self._schedule_one(request, cached, reuse, this_pass)
        if outcome is not Scheduled.GIVEN:
            return False
        self.waiting.remove(request)
        request.status = RequestStatus.RUNNING
        if request.first_admit_ms is None:
            request.first_admit_ms = this_pass.now_ms
            request.reused_input_tokens = cached
        request.run_order = self._run_order
        self._run_order += 1
        self.tail.append(request)
        this_pass.cached_tokens += cached
        this_pass.admissions.append(AdmissionEvent(request.request_id, cached, request.preemptions > 0))
        return this_pass.given[request].tokens > 0 or this_pass.budget > 0

    def _is_rejected(self, request: SchedRequest) -> bool:
        longest = self._args.max_model_len
        if longest is not None and request.num_prompt_tokens >= longest:
            return True
        return self.policy.can_never_run(request)

    def _admissible_cost(self, request: SchedRequest) -> PrefillCost | None:
        """The prefill cost if the whole known sequence fits now, else None."""
        policy = self.policy
        available = policy.blocks_available(self.running())
        activations = self.kv.pool.activations
        if request.blocked_at_activations >= 0:
            # Blocked before: at most as many of its prefix blocks can have become active since as blocks did
            # at all, so this bound spares walking a long prefix again in every pass.
            gained = activations - request.blocked_at_activations
            if request.blocked_needed_blocks - gained > available:
                return None
        complete = request.is_complete
        cost = self.kv.prefill_cost(request.table, request.num_tokens, complete=complete)
        needed = policy.blocks_needed(request) - cost.active_cached_tokens // self._block_size
        if needed > available:
            request.blocked_needed_blocks = needed
            request.blocked_at_activations = activations
            return None
        request.blocked_at_activations = -1
        return cost

    def _schedule_one(
        self, request: SchedRequest, cached: int, reuse: list[BlockHandle], this_pass: PassState
    ) -> Scheduled:
        """Give one request what the budget allows (4.3). `cached` tokens come with `reuse`."""
        tokens = request.num_tokens
        before = request.computed + cached
        want = min(tokens - before, this_pass.budget)
        prompt_left = request.num_prompt_tokens - before
        if prompt_left > this_pass.budget and not self._args.enable_chunked_prefill:
            return Scheduled.BLOCKED
        if want == 0 and tokens > before:
            return Scheduled.BLOCKED
        outcome = self._allocate(request, before + want, reuse, this_pass)
        if outcome is not Scheduled.GIVEN:
            return outcome
        request.computed = before + want
        self.kv.cache_computed(request.table, request.computed)
        prompt_before = min(before, request.num_prompt_tokens)
        prompt_tokens = min(request.computed, request.num_prompt_tokens) - prompt_before
        given = Given(want, prompt_before, prompt_tokens)
        this_pass.give(request, given, priced=self.prices_prefill(request))
        return Scheduled.GIVEN

    def _allocate(
        self, request: SchedRequest, num_tokens: int, reuse: list[BlockHandle], this_pass: PassState
    ) -> Scheduled:
        """Cover `num_tokens`, preempting running requests until it fits. BLOCKED: nobody is left to
        preempt.
        """
        while True:
            outcome = self._try_allocate(request, num_tokens, reuse, this_pass)
            if outcome is not Scheduled.BLOCKED:
                return outcome
            victim = self._choose_victim(this_pass)
            if victim is None:
                return Scheduled.BLOCKED
            self._preempt(victim, this_pass)
            if victim is request:
                return Scheduled.SELF_PREEMPTED

    def _try_allocate(
        self, request: SchedRequest, num_tokens: int, reuse: list[BlockHandle], this_pass: PassState
    ) -> Scheduled:
        """Cover `num_tokens` without preempting. SKIPPED: offload copies must end first."""
        if self.offload is not None:
            fresh = self.kv.blocks_for(num_tokens) - request.table.num_blocks - len(reuse)
            if fresh > 0 and not self.offload.make_room(fresh, reuse, this_pass.now_ms):
                return Scheduled.SKIPPED
        return Scheduled.GIVEN if self.kv.allocate(request.table, num_tokens, reuse) else Scheduled.BLOCKED

    def _choose_victim(self, this_pass: PassState) -> SchedRequest | None:
        mode = self.policy.preemption_mode
        assert mode is not None, "a guaranteed-no-evict engine ran out of blocks"
        if mode is PreemptionMode.LIFO:
            if self.tail:
                return self.tail[-1]
            return next(reversed(self.cohort.members), None)
        if self.cohort.members:
            # Taking the oldest shifts the running order under the loop's index, so the order must be
            # concrete.
            count = len(self.cohort.members)
            this_pass.budget += count
            self._dissolve_cohort(this_pass, given=count)
            this_pass.index += count
            this_pass.cohort_given = False
        return self.tail[0] if self.tail else None

    def _preempt(self, victim: SchedRequest, this_pass: PassState) -> None:
        """Free everything, undo this pass's work, put in front of the queue (4.3)."""
        if victim.cohort is not None:
            self.cohort.leave(victim)
            if this_pass.cohort_given:
                this_pass.budget += 1
        else:
            self.tail.remove(victim)
        this_pass.take_back(victim, priced=self.prices_prefill(victim))
        self.kv.free(victim.table)
        victim.computed = 0
        victim.kv_in_place = False
        victim.preemptions += 1
        victim.status = RequestStatus.WAITING
        self.preemptions_total += 1
        self.capacity_generation += 1
        self.waiting.put_front(victim)
        this_pass.preempted.append(victim.request_id)
