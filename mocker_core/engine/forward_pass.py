"""The forward-pass snapshot (FPM): what a pass computes and what waits behind it (engine.md section 4,
end).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mocker_core.metrics import ForwardPassMetrics, LengthStats
from mocker_core.sched.pass_state import PassState
from mocker_core.sched.queue import length_stats

if TYPE_CHECKING:
    from mocker_core.engine.core import EngineCore


def forward_pass_metrics(
    core: EngineCore, this_pass: PassState, pass_index: int, start_ms: float, end_ms: float
) -> ForwardPassMetrics:
    """Take it after scheduling and before the pass is committed."""
    queued_prefill, queued_decode = core.scheduler.waiting.lengths()
    return ForwardPassMetrics(
        dp_rank=core.dp_rank,
        pass_index=pass_index,
        start_ms=start_ms,
        wall_time_ms=end_ms - start_ms,
        scheduled_prefill=_scheduled_prefill(this_pass),
        scheduled_decode=_scheduled_decode(core, this_pass),
        queued_prefill=queued_prefill,
        queued_decode=queued_decode,
        prefill_cached_tokens=this_pass.cached_tokens,
    )


def _scheduled_prefill(this_pass: PassState) -> LengthStats:
    count = total = squares = 0
    for given in this_pass.given.values():
        if given.prompt_tokens:
            count += 1
            total += given.prompt_tokens
            squares += given.prompt_tokens * given.prompt_tokens
    return length_stats(count, total, squares)


def _scheduled_decode(core: EngineCore, this_pass: PassState) -> LengthStats:
    """Context lengths of the requests that get a token without prompt work, which a complete one does not."""
    cohort = core.scheduler.cohort
    count, total, squares = len(cohort.members), cohort.sum_tokens, cohort.sum_squares
    for request, given in this_pass.given.items():
        if not given.prompt_tokens and not request.is_complete:
            count += 1
            total += request.computed
            squares += request.computed * request.computed
    return length_stats(count, total, squares)
