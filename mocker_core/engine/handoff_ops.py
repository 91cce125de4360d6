"""The handoff commands inside the core: holds, reservations, activations, expiry (engine.md section 7).

Owns the ledgers of sources and destinations of one rank. The protocol between two ranks is
`handoff.coordinator`'s; this side only says what it did.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from enum import Enum
from typing import TYPE_CHECKING, assert_never

from mocker_core.commands import (
    ActivateDestination,
    Applied,
    CancelDestination,
    CancelRequest,
    CancelSource,
    CommandEffects,
    CommandResult,
    DestinationAccepted,
    Noop,
    ReleaseSource,
    ReserveDestination,
    SchedulerCommand,
    Submit,
    SubmitHandoffPrefill,
    Submitted,
)
from mocker_core.engine_args import KvTransferTimingMode
from mocker_core.errors import DuplicateIdError, RequestError, WrongWorkerTypeError
from mocker_core.events import (
    DestinationExpired,
    DestinationReserved,
    OutputSignal,
    SchedulerLifecycleEvent,
    SourceExpired,
    SourceHeld,
)
from mocker_core.handoff.timing import TransferTiming
from mocker_core.request import DirectRequest, HandoffId
from mocker_core.sched.state import RequestStatus, SchedRequest

if TYPE_CHECKING:
    from mocker_core.engine.core import EngineCore


class DestinationState(Enum):
    """ACTIVE from its activation to its end, whether it waits or runs."""

    PENDING = "pending"
    RESERVED = "reserved"
    ACTIVE = "active"


class HandoffOps:
    """Sources by handoff id (running or held) and destinations by handoff id (pending, reserved or
    active).
    """

    def __init__(self, core: EngineCore, *, expire: bool = True) -> None:
        self._core = core
        self._timeout_ms = core.args.handoff_session_timeout_ms if expire else None
        self._timing = TransferTiming.from_args(core.args)
        self._sources: dict[HandoffId, SchedRequest] = {}
        self._destinations: dict[HandoffId, SchedRequest] = {}
        self._states: dict[HandoffId, DestinationState] = {}
        self._pending: OrderedDict[HandoffId, SchedRequest] = OrderedDict()
        self._reserved = 0
        self._tried: tuple[HandoffId, int] | None = None
        self._expiries: list[tuple[float, HandoffId]] = []
        self._expires_at: dict[HandoffId, float] = {}
        self.expired_sources_total = 0
        self.expired_destinations_total = 0

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    @property
    def num_waiting_destinations(self) -> int:
        return len(self._pending) + self._reserved

    @property
    def num_held_sources(self) -> int:
        return sum(1 for state in self._sources.values() if state.status is RequestStatus.HELD)

    def apply(
        self, command: SchedulerCommand, *, allow_destination_grant: bool, now_ms: float
    ) -> CommandEffects:
        """Apply one command; an Applied one outside a pass, and a new destination, come with one grant
        attempt.
        """
        result = self._apply(command, now_ms)
        attempts = isinstance(result, Applied | DestinationAccepted)
        lifecycle = self.try_grant(now_ms) if allow_destination_grant and attempts else []
        return CommandEffects(result, tuple(lifecycle), self._core.take_kv_events())

    def _apply(self, command: SchedulerCommand, now_ms: float) -> CommandResult:
        core = self._core
        match command:
            case Submit(request):
                core.receive(request)
                return Submitted(request.request_id)
            case CancelRequest(request_id):
                return Applied() if core.cancel(request_id, now_ms) else Noop()
            case SubmitHandoffPrefill(handoff_id, request):
                return self._submit_prefill(handoff_id, request)
            case ReleaseSource(handoff_id):
                return self._release_source(handoff_id)
            case CancelSource(handoff_id):
                return self._cancel(self._sources.get(handoff_id))
            case ReserveDestination(handoff_id, request):
                return self._reserve(handoff_id, request)
            case ActivateDestination(handoff_id):
                return self._activate(handoff_id)
            case CancelDestination(handoff_id):
                return self._cancel(self._destinations.get(handoff_id))
        assert_never(command)

    def try_grant(self, now_ms: float) -> list[SchedulerLifecycleEvent]:
        """One attempt: only the head, at most one grant, and not again until capacity changed."""
        core = self._core
        if not self._pending or not core.scheduler.has_room:
            return []
        handoff_id, request = next(iter(self._pending.items()))
        attempt = (handoff_id, core.scheduler.capacity_generation)
        if self._tried == attempt:
            return []
        fresh = self._take_blocks(request, now_ms)
        if fresh is None:
            self._tried = attempt
            return []
        del self._pending[handoff_id]
        self._states[handoff_id] = DestinationState.RESERVED
        self._reserved += 1
        transferable = fresh * core.args.block_size
        delay_ms = self._timing.handoff_delay_ms(
            prompt_tokens=request.num_prompt_tokens, transferable_prompt_tokens=transferable
        )
        self._expire_after(handoff_id, now_ms, delay_ms)
        return [DestinationReserved(handoff_id, request.request_id, transferable)]

    def hidden_signal(self, request: SchedRequest, token_id: int | None) -> OutputSignal:
        """The one token of a handoff prefill: it carries the modelled delay and is never shown."""
        delay_ms = self._source_delay_ms(request)
        return OutputSignal(request.request_id, token_id, True, handoff_delay_ms=delay_ms, hidden=True)

    def hold(self, request: SchedRequest, now_ms: float) -> SourceHeld:
        """A handoff prefill completed at `now_ms`: its blocks stay until released, cancelled or expired."""
        assert request.handoff_id is not None
        prompt = request.num_prompt_tokens
        # Where the destination decides what is moved, it is the whole prompt at most.
        self._expire_after(request.handoff_id, now_ms, self._timing.delay_ms(prompt))
        return SourceHeld(request.handoff_id, request.request_id, self._source_delay_ms(request), prompt)

    def forget(self, request: SchedRequest) -> None:
        """The request ended or is dropped: strike it from the ledgers. Its blocks are the caller's to
        free.
        """
        handoff_id = request.handoff_id
        if handoff_id is None:
            handoff_id = request.destination_of
            if handoff_id is None:
                return
            del self._destinations[handoff_id]
            if self._states.pop(handoff_id) is DestinationState.RESERVED:
                self._reserved -= 1
            self._pending.pop(handoff_id, None)
        else:
            del self._sources[handoff_id]
        self._expires_at.pop(handoff_id, None)

    def expire(self, now_ms: float) -> list[SchedulerLifecycleEvent]:
        """Cancel and count what nobody released or activated in time."""
        expired: list[SchedulerLifecycleEvent] = []
        while self._expiries and self._expiries[0][0] <= now_ms:
            deadline_ms, handoff_id = heapq.heappop(self._expiries)
            if self._expires_at.get(handoff_id) != deadline_ms:
                continue  # released, activated or cancelled meanwhile
            if (source := self._sources.get(handoff_id)) is not None:
                self.expired_sources_total += 1
                expired.append(SourceExpired(handoff_id, source.request_id))
                self._core.drop(source)
            elif (destination := self._destinations.get(handoff_id)) is not None:
                self.expired_destinations_total += 1
                expired.append(DestinationExpired(handoff_id, destination.request_id))
                self._core.drop(destination)
        return expired

    def next_deadline_ms(self) -> float | None:
        expiries = self._expiries
        while expiries and self._expires_at.get(expiries[0][1]) != expiries[0][0]:
            heapq.heappop(expiries)
        return expiries[0][0] if expiries else None

    def _submit_prefill(self, handoff_id: HandoffId, request: DirectRequest) -> Submitted:
        self._check_new(handoff_id)
        state = self._core.accept(request, max_output=1)
        state.handoff_id = handoff_id
        self._sources[handoff_id] = state
        self._core.scheduler.waiting.add(state)
        return Submitted(state.request_id)

    def _release_source(self, handoff_id: HandoffId) -> CommandResult:
        """Only held KV can be released; a source that still runs is not held yet."""
        source = self._sources.get(handoff_id)
        if source is None or source.status is not RequestStatus.HELD:
            return Noop()
        return self._cancel(source)

    def _cancel(self, request: SchedRequest | None) -> CommandResult:
        if request is None:
            return Noop()
        self._core.drop(request)
        return Applied()

    def _reserve(self, handoff_id: HandoffId, request: DirectRequest) -> DestinationAccepted:
        core = self._core
        self._check_new(handoff_id)
        if not core.policy.supports_destinations:
            raise WrongWorkerTypeError(
                f"engine_type {core.args.engine_type.value} can't reserve a destination; "
                "use engine_type vllm."
            )
        state = core.new_state(request, max_output=request.num_output_tokens)
        self._check_fits(state)
        core.register(state)
        state.destination_of = handoff_id
        self._destinations[handoff_id] = state
        self._states[handoff_id] = DestinationState.PENDING
        self._pending[handoff_id] = state
        return DestinationAccepted(state.request_id)

    def _check_fits(self, state: SchedRequest) -> None:
        args = self._core.args
        prompt = state.num_prompt_tokens
        if args.max_model_len is not None and prompt >= args.max_model_len:
            raise RequestError(
                f"the prompt has {prompt} tokens, but max_model_len is {args.max_model_len}; "
                "shorten the prompt."
            )
        if self._core.policy.can_never_run(state):
            room = args.num_gpu_blocks * args.block_size
            raise RequestError(
                f"the prompt has {prompt} tokens and may grow by {state.limit}, but the KV pool holds "
                f"{room} tokens; shorten the prompt or lower max_tokens."
            )

    def _activate(self, handoff_id: HandoffId) -> CommandResult:
        request = self._destinations.get(handoff_id)
        if request is None or self._states[handoff_id] is not DestinationState.RESERVED:
            return Noop()
        self._states[handoff_id] = DestinationState.ACTIVE
        self._reserved -= 1
        self._expires_at.pop(handoff_id, None)
        request.computed = request.num_prompt_tokens
        request.kv_in_place = True
        self._core.kv.cache_computed(request.table, request.num_prompt_tokens)
        self._core.scheduler.waiting.add(request)
        return Applied()

    def _take_blocks(self, request: SchedRequest, now_ms: float) -> int | None:
        """Pin the resident prefix and take fresh blocks for the rest of the prompt; None if that can't be
        met.
        """
        core = self._core
        prompt = request.num_prompt_tokens
        hits = (
            core.kv.prefill_cost(request.table, prompt, complete=True).cached_tokens // core.args.block_size
        )
        reuse = core.kv.prefix_for(request.table, hits)
        fresh = core.kv.blocks_for(prompt) - hits
        offload = core.offload
        if offload is not None and not offload.make_room(fresh, reuse, now_ms, all_or_nothing=True):
            return None
        return fresh if core.kv.allocate(request.table, prompt, reuse) else None

    def _source_delay_ms(self, request: SchedRequest) -> float | None:
        if self._timing.mode is KvTransferTimingMode.DESTINATION_MISSING:
            return None
        return self._timing.delay_ms(request.num_prompt_tokens)

    def _expire_after(self, handoff_id: HandoffId, now_ms: float, transfer_ms: float | None) -> None:
        """Start the session timeout; the modelled transfer does not count for it."""
        if self._timeout_ms is None:
            return
        deadline_ms = now_ms + (transfer_ms or 0.0) + self._timeout_ms
        self._expires_at[handoff_id] = deadline_ms
        heapq.heappush(self._expiries, (deadline_ms, handoff_id))

    def _check_new(self, handoff_id: HandoffId) -> None:
        if handoff_id in self._sources or handoff_id in self._destinations:
            raise DuplicateIdError(f"handoff id {handoff_id} is in use; send a new id.")
