"""Every difference between engine types (engine.md 4.6): vllm admits what fits now, trtllm reserves the
whole future.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from mocker_core.engine_args import EngineType, MockEngineArgs, PreemptionMode
from mocker_core.kv.block_pool import BlockPool
from mocker_core.sched.state import SchedRequest


class Policy(Protocol):
    """What the scheduler asks about a request before it admits or preempts."""

    preemption_mode: PreemptionMode | None
    supports_destinations: bool

    def output_limit(self, num_prompt_tokens: int, max_output: int) -> int:
        """The most output tokens that the pool leaves room for, where the engine clamps."""

    def can_never_run(self, request: SchedRequest) -> bool:
        """Reject at the queue's head: too large for the pool now, or sure to outgrow it."""

    def blocks_needed(self, request: SchedRequest) -> int:
        """Blocks an admission must find, before active cached ones are taken off."""

    def blocks_available(self, running: Iterable[SchedRequest]) -> int: ...


class VllmPolicy:
    """The known sequence must fit now; running requests may be preempted later."""

    supports_destinations = True

    def __init__(self, args: MockEngineArgs, pool: BlockPool) -> None:
        self.preemption_mode: PreemptionMode | None = args.preemption_mode
        self._pool = pool
        self._block_size = args.block_size

    def output_limit(self, num_prompt_tokens: int, max_output: int) -> int:
        return max_output

    def can_never_run(self, request: SchedRequest) -> bool:
        if request.first_admit_ms is not None:
            return False
        # The last sampled token never needs a slot of its own.
        longest = max(request.num_tokens, request.num_prompt_tokens + request.limit - 1)
        return -(-longest // self._block_size) > self._pool.capacity

    def blocks_needed(self, request: SchedRequest) -> int:
        return -(-request.num_tokens // self._block_size)

    def blocks_available(self, running: Iterable[SchedRequest]) -> int:
        return self._pool.free_blocks + self._pool.inactive_blocks


class TrtllmPolicy:
    """GUARANTEED_NO_EVICT: a request's whole future is reserved at admission, so nobody is ever preempted."""

    supports_destinations = False
    preemption_mode: PreemptionMode | None = None

    def __init__(self, args: MockEngineArgs, pool: BlockPool) -> None:
        self._pool = pool
        self._block_size = args.block_size

    def output_limit(self, num_prompt_tokens: int, max_output: int) -> int:
        return max(0, min(max_output, self._pool.capacity * self._block_size - num_prompt_tokens))

    def can_never_run(self, request: SchedRequest) -> bool:
        return request.first_admit_ms is None and self.blocks_needed(request) > self._pool.capacity

    def blocks_needed(self, request: SchedRequest) -> int:
        return -(-(request.num_prompt_tokens + request.max_output) // self._block_size)

    def blocks_available(self, running: Iterable[SchedRequest]) -> int:
        pool = self._pool
        promised = sum(max(0, self.blocks_needed(request) - request.table.num_blocks) for request in running)
        return pool.free_blocks + pool.inactive_blocks - promised


def build_policy(args: MockEngineArgs, pool: BlockPool) -> Policy:
    if args.engine_type is EngineType.TRTLLM:
        return TrtllmPolicy(args, pool)
    return VllmPolicy(args, pool)
