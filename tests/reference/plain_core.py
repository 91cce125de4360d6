"""Plain engine core: the plain scheduler with its commands. The fast core is compared with it.

It shares no code with mocker_core and must never import it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from .plain_pool import IdentityTable
from .plain_request import PlainArgs, PlainRequest
from .plain_scheduler import PlainPass, PlainScheduler

__all__ = ["IdentityTable", "PlainArgs", "PlainCore", "PlainPass", "PlainRequest"]


class PlainCore(PlainScheduler):
    """The engine core with its commands. Commands answer True for Applied (or accepted), False for Noop."""

    _refused: tuple[PlainRequest, int] | None = None  # head that found no room, and at which capacity

    def receive(self, request: PlainRequest) -> None:
        """Submit a plain request; it is priced as local."""
        request.local = True
        self._accept(request)
        self._enqueue(request)

    def cancel(self, request_id: Hashable, now_ms: float) -> bool:
        """Drop a request wherever it is and release its KV at once."""
        for queue in (self.running, self.preempted, self.waiting, self.pending, self.reserved, self.sources):
            for request in queue:
                if request.request_id == request_id:
                    return self._drop(request)
        return False

    def _drop(self, request: PlainRequest) -> bool:
        for queue in (self.running, self.preempted, self.waiting, self.pending, self.reserved, self.sources):
            if request in queue:
                queue.remove(request)
        self._drop_kv(request)
        return True

    def check(self) -> None:
        """Assert what must hold between any two steps."""
        queued = [*self.running, *self.preempted, *self.waiting, *self.pending, *self.reserved]
        requests = [*queued, *(r for r in self.sources if r.held)]
        assert len(set(requests)) == len(requests), "a request is in two queues"
        holds = Counter(block for request in requests for block in request.blocks)
        assert all(block.holders == count for block, count in holds.items())
        assert not any(block in self.pool.inactive for block in holds)
        assert self.pool.free + len(self.pool.inactive) + len(holds) == self.pool.capacity
        resident = [block for copies in self.pool.copies.values() for block in copies]
        cached = [block for block in holds if block.identity is not None]
        assert set(resident) == {*self.pool.inactive, *cached}
        for request in requests:
            assert len(request.blocks) * self.args.block_size >= request.computed

    def _by_handoff(self, handoff_id: Hashable, *queues: list[PlainRequest]) -> PlainRequest | None:
        found = (r for queue in queues for r in queue if r.handoff_id == handoff_id)
        return next(found, None)

    # --- source side -----------------------------------------------------------------------------

    def submit_handoff_prefill(self, handoff_id: Hashable, request: PlainRequest) -> None:
        """Queue a prefill whose blocks stay held when it ends; its output is one hidden token."""
        request.local, request.handoff_id, request.max_output_tokens = False, handoff_id, 1
        self._accept(request)
        self.sources.append(request)
        self._enqueue(request)

    def release_source(self, handoff_id: Hashable) -> bool:
        request = self._by_handoff(handoff_id, [r for r in self.sources if r.held])
        return request is not None and self._drop(request)

    def cancel_source(self, handoff_id: Hashable) -> bool:
        request = self._by_handoff(handoff_id, self.sources)
        return request is not None and self._drop(request)

    # --- destination side ------------------------------------------------------------------------

    def reserve_destination(self, handoff_id: Hashable, request: PlainRequest) -> None:
        """Queue for a reservation of the prompt's blocks. ValueError if it can never be served."""
        if self.args.engine_type == "trtllm":
            raise ValueError("trtllm does not reserve destinations")
        if self._too_long(request) or self._never_fits(request):
            raise ValueError(f"request {request.request_id!r} does not fit num_gpu_blocks or max_model_len")
        request.local, request.handoff_id = False, handoff_id
        self._accept(request)
        self.pending.append(request)

    def attempt_grant(self) -> PlainRequest | None:
        """One grant attempt: only the head, at most one, and not again before the capacity changed."""
        if not self.pending:
            return None
        if self.args.max_num_seqs is not None and len(self.running) >= self.args.max_num_seqs:
            return None
        head = self.pending[0]
        if self._refused == (head, self.capacity_generation):
            return None
        hits = [b.identity for b in self._resident_prefix(head, head.prompt_tokens) if b.identity is not None]
        fresh = self._blocks_for(head.prompt_tokens) - len(hits)
        blocks = self.pool.allocate(hits, fresh)
        if blocks is None:
            self._refused = (head, self.capacity_generation)
            return None
        self.pending.pop(0)
        self.reserved.append(head)
        head.blocks, head.cached_blocks = blocks, len(hits)
        head.transferable_tokens = fresh * self.args.block_size
        event = ("destination_reserved", head.handoff_id, head.request_id, head.transferable_tokens)
        self.lifecycle.append(event)
        return head

    def activate_destination(self, handoff_id: Hashable) -> bool:
        """The reserved blocks hold the prompt's KV now: join the waiting queue with it in place."""
        request = self._by_handoff(handoff_id, self.reserved)
        if request is None:
            return False
        self.reserved.remove(request)
        request.computed = request.prompt_tokens
        request.kv_in_place = True
        self._cache_full_blocks(request)
        self._enqueue(request)
        return True

    def cancel_destination(self, handoff_id: Hashable) -> bool:
        active = [r for r in (*self.running, *self.preempted, *self.waiting) if r not in self.sources]
        request = self._by_handoff(handoff_id, self.pending, self.reserved, active)
        return request is not None and self._drop(request)
