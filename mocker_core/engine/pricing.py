"""What a scheduled pass costs in milliseconds (engine.md 4.4): which work is charged, and the speed-ups."""

from __future__ import annotations

from mocker_core.engine_args import MockEngineArgs, WorkerType
from mocker_core.perf.build import build_perf_model
from mocker_core.perf.model import PassWork
from mocker_core.sched.pass_state import PassState
from mocker_core.sched.scheduler import Scheduler
from mocker_core.sched.state import SchedRequest


class Pricing:
    """Prices passes of one rank."""

    def __init__(self, args: MockEngineArgs, dp_rank: int) -> None:
        self.model = build_perf_model(args, dp_rank)
        # A divisor of 0 means no scaling.
        self._prefill_divisor = args.speedup_ratio or 1.0
        self._decode_divisor = args.speedup_ratio * args.decode_speedup_ratio or 1.0
        self._worker_type = args.worker_type
        self._total_kv_tokens = args.num_gpu_blocks * args.block_size

    def price(self, scheduler: Scheduler, this_pass: PassState) -> tuple[float, float]:
        """(prefill_ms, decode_ms) of a pass, speed-ups applied."""
        count, tokens = self._decode_batch(scheduler)
        batch = this_pass.batch
        if not batch and not count:
            return 0.0, 0.0
        work = PassWork(
            prefill_batch=batch,
            prefill_mean_isl=this_pass.batch_isl // batch if batch else 0,
            prefill_mean_prefix=this_pass.batch_prefix // batch if batch else 0,
            decode_batch=count,
            active_kv_tokens=tokens,
            mean_context_tokens=tokens // count if count else 0,
            total_kv_tokens=self._total_kv_tokens,
            running_requests=scheduler.num_running,
        )
        prefill_ms = self.model.prefill_ms(work) / self._prefill_divisor if batch else 0.0
        decode_ms = self.model.decode_ms(work) / self._decode_divisor if count else 0.0
        return prefill_ms, decode_ms

    def _decode_batch(self, scheduler: Scheduler) -> tuple[int, int]:
        """Number and summed L of the requests whose token this pass decodes."""
        cohort = scheduler.cohort
        count, tokens = len(cohort.members), cohort.sum_tokens
        for request in scheduler.tail:
            length = request.num_tokens
            if request.computed == length and not request.is_complete and self._decodes_here(request):
                count += 1
                tokens += length
        return count, tokens

    def _decodes_here(self, request: SchedRequest) -> bool:
        """A first token comes from the prefill, unless that ran elsewhere; a prefill worker decodes local
        work only.
        """
        if request.request.local or self._worker_type is WorkerType.AGGREGATED:
            return request.generated > 0
        return self._worker_type is WorkerType.DECODE
