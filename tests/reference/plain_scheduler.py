"""Plain scheduler: queues, one pass, its price and its tokens, in the order the rules state them.

Written from the rules alone, for obvious correctness: one pass is a loop over the running requests,
then a loop over the waiting ones. It shares no code with mocker_core and must never import it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from .plain_pool import IdentityTable, KvEvent, PlainBlock, PlainPool
from .plain_request import PlainArgs, PlainRequest

SCHEDULED, BLOCKED, PREEMPTED_ITSELF = "scheduled", "blocked", "preempted itself"


@dataclass(slots=True)
class PlainPass:
    """What one pass did. An output is (request, token index or None, completed, rejected).

    A KV event is (stored | removed, parent or None, identities); metrics are (active blocks, all blocks,
    running, waiting, preemptions); a lifecycle entry is (source_held | destination_reserved, handoff,
    request, transfer tokens). `progress` is false for a pass that took no time and changed nothing.
    """

    end_ms: float
    outputs: list[tuple[Hashable, int | None, bool, bool]]
    admissions: list[tuple[Hashable, int]]
    kv_events: list[KvEvent]
    metrics: tuple[int, int, int, int, int]
    lifecycle: list[tuple[str, Hashable, Hashable, int]]
    progress: bool


@dataclass(slots=True)
class _Batch:
    """Accounts of the pass that is being scheduled."""

    budget: int
    requests: int = 0
    isl: int = 0
    prefix: int = 0
    preempted: bool = False
    scheduled: bool = False
    rejected: list[PlainRequest] = field(default_factory=list)
    admissions: list[tuple[Hashable, int]] = field(default_factory=list)


class PlainScheduler:
    """Sections 2-5: queues, pool and one pass. Handoff state is here, its commands are not."""

    def __init__(self, args: PlainArgs, identities: IdentityTable | None = None) -> None:
        self.args = args
        self.pool = PlainPool(args.num_gpu_blocks)
        self.identities = identities or IdentityTable()
        self.running: list[PlainRequest] = []
        self.preempted: list[PlainRequest] = []  # the front of the waiting queue, latest first
        self.waiting: list[PlainRequest] = []  # by (-priority, order of acceptance)
        self.pending: list[PlainRequest] = []  # destinations without a reservation, FIFO
        self.reserved: list[PlainRequest] = []  # destinations with one, not activated
        self.sources: list[PlainRequest] = []  # handoff prefills: on their way or held
        self.lifecycle: list[tuple[str, Hashable, Hashable, int]] = []
        self.preemptions = 0
        self.capacity_generation = 0
        self._accepted = 0

    # --- queue and small facts -------------------------------------------------------------------

    def _accept(self, request: PlainRequest) -> None:
        self._accepted += 1
        request.order = self._accepted
        if self.args.engine_type == "trtllm":
            room = max(0, self.args.num_gpu_blocks * self.args.block_size - request.prompt_tokens)
            request.max_output_tokens = min(request.max_output_tokens, room)

    def _enqueue(self, request: PlainRequest) -> None:
        key = (-request.priority, request.order)
        place = len(self.waiting)
        while place > 0 and (-self.waiting[place - 1].priority, self.waiting[place - 1].order) > key:
            place -= 1
        self.waiting.insert(place, request)

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.args.block_size)

    def _is_complete(self, request: PlainRequest) -> bool:
        left = request.max_output_tokens - request.generated
        if self.args.max_model_len is not None:
            left = min(left, self.args.max_model_len - request.length)
        return left <= 0

    def _too_long(self, request: PlainRequest) -> bool:
        return self.args.max_model_len is not None and request.prompt_tokens >= self.args.max_model_len

    def _never_fits(self, request: PlainRequest) -> bool:
        """It exceeds the pool now, or would before its last token (which needs no KV)."""
        output = request.max_output_tokens
        if self.args.max_model_len is not None:
            output = min(output, self.args.max_model_len - request.prompt_tokens)
        most = max(request.length, request.prompt_tokens + output - 1)
        return self._blocks_for(most) > self.args.num_gpu_blocks

    def _full_blocks(self, request: PlainRequest) -> int:
        """trtllm: blocks of the request's whole future."""
        return self._blocks_for(request.prompt_tokens + request.max_output_tokens)

    def _identities(self, request: PlainRequest, tokens: int) -> list[int]:
        """Identities of the full blocks in the first `tokens` tokens."""
        bs, chain = self.args.block_size, request.identities
        while len(chain) < tokens // bs:
            i = len(chain)
            content = request.content(i * bs, (i + 1) * bs)
            chain.append(self.identities.identity(chain[-1] if chain else None, content))
        return chain[: tokens // bs]

    def _resident_prefix(self, request: PlainRequest, tokens: int) -> list[PlainBlock]:
        hits: list[PlainBlock] = []
        if self.args.enable_prefix_caching:
            for identity in self._identities(request, tokens):
                block = self.pool.find(identity)
                if block is None:
                    break
                hits.append(block)
        return hits

    def _prefill_cost(self, request: PlainRequest) -> tuple[int, int]:
        """(cached_tokens, active_cached_tokens)."""
        bs = self.args.block_size
        hits = self._resident_prefix(request, request.length)
        cached = len(hits) * bs
        active = sum(1 for block in hits if self.pool.is_active(block)) * bs
        if not self._is_complete(request):
            cached = min(cached, (request.length - 1) // bs * bs)
            active = min(active, cached)
        return cached, active

    def _metrics(self) -> tuple[int, int, int, int, int]:
        waiting = len(self.preempted) + len(self.waiting) + len(self.pending) + len(self.reserved)
        return self.pool.active, self.pool.capacity, len(self.running), waiting, self.preemptions

    def take_kv_events(self) -> list[KvEvent]:
        """KV events since the last call. Take those of a command, else they come with the next pass's."""
        events, self.pool.events = self.pool.events, []
        return events

    def take_lifecycle(self) -> list[tuple[str, Hashable, Hashable, int]]:
        """Lifecycle events since the last call; as for KV events."""
        events, self.lifecycle = self.lifecycle, []
        return events

    # --- one pass --------------------------------------------------------------------------------

    def execute_pass(self, now_ms: float) -> PlainPass:
        """Schedule, price and emit one pass that starts at `now_ms`."""
        metrics_before = self._metrics()
        events_before, lifecycle_before = len(self.pool.events), len(self.lifecycle)
        for request in self.running:
            request.given_tokens, request.given_prompt = 0, None
        budget = self.args.max_num_batched_tokens
        batch = _Batch(budget=budget if budget is not None else 1 << 62)
        self._schedule_running(batch)
        self._schedule_waiting(batch)
        end_ms = now_ms + self._pass_ms(batch)
        outputs = self._emit(batch)
        metrics = self._metrics()
        did_work = end_ms > now_ms or batch.scheduled or metrics != metrics_before
        published = len(self.pool.events) > events_before or len(self.lifecycle) > lifecycle_before
        progress = bool(did_work or published or outputs or batch.admissions)
        events, lifecycle = self.take_kv_events(), self.take_lifecycle()
        return PlainPass(end_ms, outputs, batch.admissions, events, metrics, lifecycle, progress)

    def _schedule_running(self, batch: _Batch) -> None:
        i = 0
        while i < len(self.running) and batch.budget > 0:
            outcome = self._schedule(self.running[i], 0, batch)
            if outcome == BLOCKED:
                return
            if outcome == SCHEDULED:
                i += 1  # not lowered by preemptions: in fifo mode the next request is passed over

    def _schedule_waiting(self, batch: _Batch) -> None:
        max_num_seqs = self.args.max_num_seqs
        only_in_place = bool(self.pending)
        while not batch.preempted and (max_num_seqs is None or len(self.running) < max_num_seqs):
            request = self._candidate(only_in_place)
            if request is None:
                return
            fresh = request.preemptions == 0
            if not request.kv_in_place and (self._too_long(request) or (fresh and self._never_fits(request))):
                self._dequeue(request)
                batch.rejected.append(request)
                continue
            cached = 0
            if not request.kv_in_place:
                cached, active_cached = self._prefill_cost(request)
                if not self._has_room(request, active_cached):
                    in_place = any(other.kv_in_place for other in self.waiting)
                    if self.running or not in_place:
                        return
                    only_in_place = True  # else nobody would ever run again
                    continue
            request.given_tokens, request.given_prompt = 0, None
            if self._schedule(request, cached, batch) != SCHEDULED:
                return
            self._dequeue(request)
            self.running.append(request)
            batch.admissions.append((request.request_id, cached))
            if request.given_tokens == 0 and batch.budget == 0:
                return

    def _candidate(self, only_in_place: bool) -> PlainRequest | None:
        if only_in_place:
            in_place = (request for request in self.waiting if request.kv_in_place)
            return next(in_place, None)
        queue = self.preempted or self.waiting
        return queue[0] if queue else None

    def _dequeue(self, request: PlainRequest) -> None:
        (self.preempted if request in self.preempted else self.waiting).remove(request)

    def _has_room(self, request: PlainRequest, active_cached: int) -> bool:
        available = self.args.num_gpu_blocks - self.pool.active
        needed = self._blocks_for(request.length)
        if self.args.engine_type == "trtllm":
            needed = self._full_blocks(request)
            available -= sum(max(0, self._full_blocks(r) - len(r.blocks)) for r in self.running)
        return needed - active_cached // self.args.block_size <= available

    def _schedule(self, request: PlainRequest, cached: int, batch: _Batch) -> str:
        cached = cached if request.computed == 0 else 0
        before = request.computed + cached
        want = min(request.length - before, batch.budget)
        prompt_left = request.prompt_tokens - before
        if prompt_left > batch.budget and not self.args.enable_chunked_prefill:
            return BLOCKED
        if want == 0 and request.length > before:
            return BLOCKED
        while not self._allocate(request, cached, before + want):
            victim = self._victim()
            if victim is None:
                return BLOCKED
            self._preempt(victim, batch)
            if victim is request:
                return PREEMPTED_ITSELF
        request.computed = before + want
        self._cache_full_blocks(request)
        self._account(request, before, want, batch)
        return SCHEDULED

    def _allocate(self, request: PlainRequest, cached: int, tokens: int) -> bool:
        fresh = self._blocks_for(tokens) - len(request.blocks)
        if fresh <= 0:
            return True
        reuse: list[int] = []
        if not request.blocks:
            reuse = self._identities(request, cached)
            request.cached_blocks = 0
        blocks = self.pool.allocate(reuse, fresh - len(reuse))
        if blocks is None:
            return False
        request.blocks += blocks
        request.cached_blocks += len(reuse)
        return True

    def _cache_full_blocks(self, request: PlainRequest) -> None:
        full = request.computed // self.args.block_size
        if self.args.enable_prefix_caching and full > request.cached_blocks:
            identities = self._identities(request, request.computed)
            self.pool.cache(request.blocks, identities, request.cached_blocks)
            request.cached_blocks = full

    def _account(self, request: PlainRequest, before: int, used: int, batch: _Batch) -> None:
        batch.budget -= used
        batch.scheduled = batch.scheduled or used > 0
        request.given_tokens = used
        prompt_before = min(before, request.prompt_tokens)
        prompt_tokens = min(before + used, request.prompt_tokens) - prompt_before
        if prompt_tokens > 0 and self._pays_prefill(request):
            request.given_prompt = (prompt_before, prompt_tokens)
            batch.requests += 1
            batch.isl += prompt_before + prompt_tokens
            batch.prefix += prompt_before

    def _victim(self) -> PlainRequest | None:
        if self.args.engine_type == "trtllm":
            raise RuntimeError("trtllm reserves every request's future, yet a block is missing")
        if not self.running:
            return None
        return self.running[-1] if self.args.preemption_mode == "lifo" else self.running[0]

    def _preempt(self, victim: PlainRequest, batch: _Batch) -> None:
        batch.preempted = True
        batch.budget += victim.given_tokens
        if victim.given_prompt is not None:
            prompt_before, prompt_tokens = victim.given_prompt
            batch.requests -= 1
            batch.isl -= prompt_before + prompt_tokens
            batch.prefix -= prompt_before
        self.running.remove(victim)
        self._drop_kv(victim)
        victim.computed = 0
        victim.kv_in_place = False
        victim.preemptions += 1
        self.preemptions += 1
        self.preempted.insert(0, victim)

    def _drop_kv(self, request: PlainRequest) -> None:
        self.pool.release(request.blocks)
        request.blocks, request.cached_blocks = [], 0
        self.capacity_generation += 1

    # --- time and tokens -------------------------------------------------------------------------

    def _pays_prefill(self, request: PlainRequest) -> bool:
        return request.local or self.args.worker_type != "decode"

    def _in_decode_batch(self, request: PlainRequest) -> bool:
        if request.local or self.args.worker_type == "aggregated":
            return request.generated > 0
        return self.args.worker_type == "decode"

    def _ready(self) -> list[PlainRequest]:
        return [r for r in self.running if r.computed == r.length and not self._is_complete(r)]

    def _pass_ms(self, batch: _Batch) -> float:
        args, n = self.args, batch.requests
        prefill = args.prefill_ms(n, batch.isl // n, batch.prefix // n) if n > 0 else 0.0
        decoding = [r.length for r in self._ready() if self._in_decode_batch(r)]
        decode = args.decode_ms(len(decoding), sum(decoding))
        prefill_speedup = args.speedup_ratio or 1.0
        decode_speedup = args.speedup_ratio * args.decode_speedup_ratio or 1.0
        return prefill / prefill_speedup + decode / decode_speedup

    def _emit(self, batch: _Batch) -> list[tuple[Hashable, int | None, bool, bool]]:
        outputs: list[tuple[Hashable, int | None, bool, bool]] = []
        for request in batch.rejected:
            outputs.append((request.request_id, None, True, True))
            self._forget(request)
        ready = self._ready()
        for request in [r for r in self.running if r.computed == r.length and self._is_complete(r)]:
            outputs.append((request.request_id, None, True, False))
            self._finish(request)
        for request in ready:
            request.generated += 1
            complete = self._is_complete(request)
            outputs.append((request.request_id, request.generated - 1, complete, False))
            if complete:
                self._finish(request)
        return outputs

    def _finish(self, request: PlainRequest) -> None:
        self.running.remove(request)
        if request in self.sources:
            request.held = True
            self.capacity_generation += 1
            held = ("source_held", request.handoff_id, request.request_id, request.prompt_tokens)
            self.lifecycle.append(held)
        else:
            self._drop_kv(request)

    def _forget(self, request: PlainRequest) -> None:
        if request in self.sources:
            self.sources.remove(request)
