"""One engine rank: schedule a pass, price it, commit it, and answer commands (engine.md sections 4 and 7).

Pure and synchronous: it is told `now_ms` and never reads a clock, sleeps or awaits, so that the live
loop and the offline replay run the very same code.
"""

from __future__ import annotations

from mocker_core import rng
from mocker_core.commands import CommandEffects, SchedulerCommand, TickEffects
from mocker_core.engine.emission import Emission, finished_facts
from mocker_core.engine.forward_pass import forward_pass_metrics
from mocker_core.engine.handoff_ops import HandoffOps
from mocker_core.engine.offload_ops import OffloadOps
from mocker_core.engine.pricing import Pricing
from mocker_core.engine_args import MockEngineArgs
from mocker_core.errors import DuplicateIdError
from mocker_core.events import KvEvent, OutputSignal
from mocker_core.kv.block_pool import BlockPool
from mocker_core.kv.events import KvEventLog
from mocker_core.kv.manager import BlockTable, KVCacheManager
from mocker_core.kv.sequence import HashedSequence, SeededOutput
from mocker_core.metrics import MockerMetrics, OffloadStats
from mocker_core.request import DirectRequest, RequestId
from mocker_core.sched.output import EnginePassResult
from mocker_core.sched.pass_state import PassState
from mocker_core.sched.policy import build_policy
from mocker_core.sched.scheduler import Scheduler
from mocker_core.sched.state import RequestStatus, SchedRequest


class EngineCore:
    """The core of one rank. `emit_tokens=False` leaves out the signals of tokens that neither start nor end a
    request (offline replays need only their number, which `EnginePassResult.gaps` has); `collect_fpm=False`
    leaves out the forward-pass snapshot; `expire_handoffs=False` lets held and reserved blocks wait for ever.
    """

    def __init__(
        self,
        args: MockEngineArgs,
        dp_rank: int = 0,
        *,
        emit_tokens: bool = True,
        collect_fpm: bool = True,
        expire_handoffs: bool = True,
    ) -> None:
        self.args = args
        self.dp_rank = dp_rank
        # Without prefix caching nothing ever becomes inactive, so there is nothing to copy down.
        offloads = args.offload_enabled and args.enable_prefix_caching
        wants_events = args.enable_kv_events and args.enable_prefix_caching
        self.events = KvEventLog(remember=offloads) if wants_events else None
        self.pool = BlockPool(args.num_gpu_blocks, self.events)
        self.kv = KVCacheManager(self.pool, args.block_size, enable_prefix_caching=args.enable_prefix_caching)
        self.policy = build_policy(args, self.pool)
        self.scheduler = Scheduler(args, self.kv, self.policy)
        self.requests: dict[RequestId, SchedRequest] = {}
        self.handoffs = HandoffOps(self, expire=expire_handoffs)
        self.offload = OffloadOps(self) if offloads else None
        self.scheduler.offload = self.offload
        self._pricing = Pricing(args, dp_rank)
        self._emission = Emission(self, emit_tokens=emit_tokens)
        self._collect_fpm = collect_fpm
        self._pass_index = 0
        self._accepted = 0

    def reprice(self, pricing: Pricing) -> None:
        """Let passes cost what `pricing` says, from the next one on."""
        self._pricing = pricing

    def is_empty(self) -> bool:
        """Nothing waits or runs. Held sources, pending destinations and parked requests don't count."""
        return not self.scheduler.waiting and not self.scheduler.num_running

    def receive(self, request: DirectRequest) -> None:
        """Put a request into the waiting queue. Raises DuplicateIdError or RequestError; then nothing
        changed.
        """
        self.scheduler.waiting.add(self.accept(request, max_output=request.num_output_tokens))

    def accept(self, request: DirectRequest, *, max_output: int) -> SchedRequest:
        """Make the scheduler's state of a request and register its id."""
        state = self.new_state(request, max_output=max_output)
        self.register(state)
        return state

    def new_state(self, request: DirectRequest, *, max_output: int) -> SchedRequest:
        """The scheduler's state of a request that nothing knows of so far. Raises RequestError."""
        request.check_lengths()
        prompt_tokens = request.num_prompt_tokens
        output = request.output_token_ids
        if output is None or len(output) < max_output:  # a handoff prefill has a token even if unplanned
            output = SeededOutput(rng.stream_seed(self.args.seed, "output", request.request_id), max_output)
        sequence = request.blocks or HashedSequence(
            request.tokens, output, self.args.block_size, request.salt
        )
        max_output = self.policy.output_limit(prompt_tokens, max_output)
        state = SchedRequest(request, BlockTable(sequence), output, max_output)
        if self.args.max_model_len is not None:
            state.limit = min(max_output, self.args.max_model_len - prompt_tokens)
        return state

    def register(self, state: SchedRequest) -> None:
        """Accept a request: its id is alive from now on, its place in the order settled.

        Raises DuplicateIdError.
        """
        if state.request_id in self.requests:
            raise DuplicateIdError(f"request id {state.request_id} is in use; send a new id.")
        state.arrival_order = self._accepted
        self._accepted += 1
        self.requests[state.request_id] = state

    def execute_pass(self, now_ms: float) -> EnginePassResult:
        """Run one pass that starts at `now_ms`. All its outputs carry `end_ms`."""
        self._end_transfers(now_ms)
        # Here too: a rank that makes no progress, or is behind its plan, never gets to `advance`.
        expired = self.handoffs.expire(now_ms)
        scheduler = self.scheduler
        self._pass_index += 1
        this_pass = scheduler.schedule(now_ms, only_in_place=self.handoffs.has_pending)
        prefill_ms, decode_ms = self._pricing.price(scheduler, this_pass)
        end_ms = now_ms + prefill_ms + decode_ms
        result = EnginePassResult(
            start_ms=now_ms,
            end_ms=end_ms,
            admissions=this_pass.admissions,
            metrics=_NO_METRICS,
            scheduled=bool(this_pass.given or this_pass.cohort_given),
            lifecycle=expired,
            preempted=this_pass.preempted,
            prefill_chunks=this_pass.prefill_chunks() if this_pass.given else [],
        )
        if self._collect_fpm:
            result.fpm = forward_pass_metrics(self, this_pass, self._pass_index, now_ms, end_ms)
        if self.events is not None:
            result.kv_events = self.events.take()
        self._emission.commit(result, self._pass_index)
        self._reject(this_pass, result)
        result.metrics = self.metrics()
        return result

    def cancel(self, request_id: RequestId, now_ms: float) -> bool:
        """Drop a request wherever it is and free its KV; False if it is unknown or ended."""
        self._end_transfers(now_ms)
        state = self.requests.get(request_id)
        if state is None:
            return False
        self.drop(state)
        return True

    def drop(self, state: SchedRequest) -> None:
        """Remove a live request from whatever holds it, free its KV and forget it."""
        scheduler = self.scheduler
        if state in scheduler.waiting:
            scheduler.waiting.remove(state)
        elif state.status is RequestStatus.RUNNING:
            scheduler.remove_running(state)
        elif state.status is RequestStatus.WAITING_FOR_REMOTE_KVS and self.offload is not None:
            self.offload.unpark(state)
        self.handoffs.forget(state)
        self.release(state)

    def release(self, state: SchedRequest) -> None:
        """Free the KV of a request that is in no queue any more, and forget its id."""
        self.kv.free(state.table)
        state.status = RequestStatus.FINISHED
        del self.requests[state.request_id]
        self.scheduler.capacity_generation += 1

    def apply_command(
        self, command: SchedulerCommand, *, allow_destination_grant: bool, now_ms: float
    ) -> CommandEffects:
        """Apply one command; raises MockerError if it is refused, and then nothing changed."""
        self._end_transfers(now_ms)
        return self.handoffs.apply(command, allow_destination_grant=allow_destination_grant, now_ms=now_ms)

    def retry_destinations(self, now_ms: float) -> TickEffects:
        """One grant attempt for the head of the pending destinations."""
        self._end_transfers(now_ms)
        lifecycle = self.handoffs.try_grant(now_ms)
        return TickEffects(tuple(lifecycle), self.take_kv_events(), granted=bool(lifecycle))

    def advance(self, now_ms: float, *, allow_destination_grant: bool) -> TickEffects:
        """Do what is due by time alone; grants only where the caller allows it."""
        self._end_transfers(now_ms)
        lifecycle = self.handoffs.expire(now_ms)
        granted = self.handoffs.try_grant(now_ms) if allow_destination_grant else []
        return TickEffects(tuple(lifecycle + granted), self.take_kv_events(), granted=bool(granted))

    def next_deadline_ms(self) -> float | None:
        """The earliest moment at which time alone changes something, or None."""
        deadline_ms = self.handoffs.next_deadline_ms()
        if self.offload is not None:
            transfer_ms = self.offload.tiers.next_deadline_ms()
            if transfer_ms is not None and (deadline_ms is None or transfer_ms < deadline_ms):
                return transfer_ms
        return deadline_ms

    def reset_prefix_cache(self, now_ms: float) -> bool:
        """Forget every cached block of every tier; False, and nothing changed, while anything holds a block.

        As vLLM does it, that is all or nothing; copies under way are dropped. Publishes Cleared.
        """
        self._end_transfers(now_ms)
        if self.pool.used_blocks > self.pool.in_copy_blocks:
            return False
        self.pool.reset()
        if self.offload is not None:
            self.offload.clear()
        if self.events is not None:
            self.events.cleared()
        self.scheduler.capacity_generation += 1
        return True

    def preempt_all(self, now_ms: float) -> int:
        """Preempt every running request, as if there were no room left; returns how many."""
        self._end_transfers(now_ms)
        return self.scheduler.preempt_all(now_ms)

    def offload_stats(self) -> OffloadStats | None:
        """The state of the offload tiers; None if offload is off."""
        return None if self.offload is None else self.offload.stats()

    def take_kv_events(self) -> tuple[KvEvent, ...]:
        """Drain the KV events not yet given out."""
        return () if self.events is None else self.events.take()

    def metrics(self) -> MockerMetrics:
        scheduler = self.scheduler
        used, total = self.pool.used_blocks, self.pool.capacity
        waiting = len(scheduler.waiting) + self.handoffs.num_waiting_destinations
        if self.offload is not None:
            waiting += self.offload.num_parked
        return MockerMetrics(
            self.dp_rank,
            used,
            total,
            used / total,
            scheduler.num_running,
            waiting,
            scheduler.preemptions_total,
        )

    def _end_transfers(self, now_ms: float) -> None:
        """Let the offload transfers end that are due; everything that is told the time begins with it."""
        if self.offload is not None:
            self.offload.tick(now_ms)

    def _reject(self, this_pass: PassState, result: EnginePassResult) -> None:
        for state in this_pass.rejected:
            result.add_end(OutputSignal(state.request_id, None, completed=True, rejected=True))
            result.finished.append(finished_facts(state, rejected=True))
            # It never held a block, so no capacity came back that a pending destination could wait for.
            self.handoffs.forget(state)
            del self.requests[state.request_id]


_NO_METRICS = MockerMetrics(0, 0, 0, 0.0, 0, 0, 0)
