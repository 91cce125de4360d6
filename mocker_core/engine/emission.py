"""Commits a pass: samples tokens, ends requests, keeps the running order (engine.md 4.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mocker_core.engine_args import WorkerType
from mocker_core.events import OutputSignal
from mocker_core.sched.output import EnginePassResult, FinishedRequest
from mocker_core.sched.state import RequestStatus, SchedRequest

if TYPE_CHECKING:
    from mocker_core.engine.core import EngineCore


class Emission:
    """Everything is stamped at the pass end. First those complete without a token, then, in running order,
    every ready request samples one.
    """

    def __init__(self, core: EngineCore, *, emit_tokens: bool) -> None:
        self._core = core
        self._scheduler = core.scheduler
        self._emit_tokens = emit_tokens
        # A prefill worker prices local decodes only, so its cohort must hold nothing else.
        self._only_local_join = core.args.worker_type is WorkerType.PREFILL

    def commit(self, result: EnginePassResult, pass_index: int) -> None:
        tail = self._scheduler.tail
        ready: list[SchedRequest] = []
        for request in list(tail):
            if request.computed == request.num_tokens:
                if request.is_complete:
                    self._end(request, result, None)
                else:
                    ready.append(request)
        if self._scheduler.cohort.members:
            self._step_cohort(result)
        for request in ready:
            self._sample(request, result, pass_index)
        if tail:
            self._absorb_tail(pass_index)

    def _step_cohort(self, result: EnginePassResult) -> None:
        cohort = self._scheduler.cohort
        result.gaps.append((result.end_ms - cohort.last_end_ms, len(cohort.members)))
        steps = cohort.steps
        ended = cohort.step(result.end_ms)
        if self._emit_tokens:
            # Hot: once per token.
            members, tokens = cohort.members, result.tokens
            if not ended:
                tokens += [
                    (request.request_id, request.output[request.generated + steps]) for request in members
                ]
                return
            ending = set(ended)
            for request in members:
                token_id = request.output[request.generated + steps]
                if request in ending:
                    result.add_end(OutputSignal(request.request_id, token_id, True))
                else:
                    tokens.append((request.request_id, token_id))
            for request in ended:
                self._finish(request, result)
        else:
            for request in ended:
                token_id = request.output[request.num_generated - 1]
                self._end(request, result, token_id)

    def _sample(self, request: SchedRequest, result: EnginePassResult, pass_index: int) -> None:
        token_id = request.output[request.generated]
        request.generated += 1
        request.sampled_pass = pass_index
        if request.first_token_ms is None:
            request.first_token_ms = result.end_ms
        if request.last_token_ms is not None:
            result.gaps.append((result.end_ms - request.last_token_ms, 1))
        request.last_token_ms = result.end_ms
        if request.is_complete:
            self._end(request, result, token_id)
        else:
            result.tokens.append((request.request_id, token_id))

    def _end(self, request: SchedRequest, result: EnginePassResult, token_id: int | None) -> None:
        if request.handoff_id is None:
            result.add_end(OutputSignal(request.request_id, token_id, True))
        else:
            result.add_end(self._core.handoffs.hidden_signal(request, token_id))
        self._finish(request, result)

    def _finish(self, request: SchedRequest, result: EnginePassResult) -> None:
        """Free the slot, and the blocks unless a handoff holds them."""
        core = self._core
        self._scheduler.remove_running(request)
        result.finished.append(finished_facts(request, rejected=False))
        if request.handoff_id is None:
            core.handoffs.forget(request)
            core.release(request)
        else:
            request.status = RequestStatus.HELD
            self._scheduler.capacity_generation += 1
            result.lifecycle.append(core.handoffs.hold(request, result.end_ms))

    def _absorb_tail(self, pass_index: int) -> None:
        """Move the head of the tail into the cohort while its requests have sampled in this pass."""
        tail = self._scheduler.tail
        cohort = self._scheduler.cohort
        absorbed = 0
        for request in tail:
            if request.sampled_pass != pass_index or (self._only_local_join and not request.request.local):
                break
            if not cohort.members:
                assert request.last_token_ms is not None
                cohort.last_end_ms = request.last_token_ms
            cohort.join(request)
            absorbed += 1
        del tail[:absorbed]


def finished_facts(request: SchedRequest, *, rejected: bool) -> FinishedRequest:
    return FinishedRequest(
        request.request_id,
        rejected,
        request.first_admit_ms,
        request.first_token_ms,
        request.last_token_ms,
        request.num_generated,
        request.reused_input_tokens,
        request.preemptions,
    )
