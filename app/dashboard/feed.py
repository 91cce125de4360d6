"""One frame of the live page: what a server does now, bounded in size however much it does.

Reads; changes nothing. Must not know HTTP or the page. `Frame` states the schema.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypedDict

from app.dashboard.curves import Curves
from app.metrics.ranks import RankLook, look_at_ranks
from app.pd.service import pd_service
from app.state import AppState
from app.timeline.record import RequestRecord
from app.timeline.tracker import tracker_of
from mocker_core.handoff.coordinator import HandoffOutcome

LISTED = 96
HANDOFFS_LISTED = 32
RECENT_LISTED = 24
STATE_KEY = "curves"


class Frame(TypedDict):
    """The schema of a frame. Times in ms: of the engine's clock (`now_ms`) or lasting that long.

    ranks: one object per rank:
        dp_rank, metrics (MockerMetrics by its names), loop (RankStats by its names),
        blocks {total, active, reserved, in_copy, cached, free}: all but `total` add up to it; only `total`
        while the engine does not run,
        tiers (OffloadStats by its names, or null without offload)
    running, waiting: at most LISTED requests each, oldest first, of `running_total` and `waiting_total`:
        as GET /admin/requests lists them (id, model, state = its phase, dp_rank, prompt_tokens,
        cached_tokens, output_tokens, max_tokens, preemptions, arrival_ms, ttft_ms, e2e_ms so far) and
        planned_tokens (what the answer will have), computed_tokens (prompt computed since its admission)
    curve: one point per second of the last minute, oldest first:
        ago_s, ttft_p50_ms, ttft_p99_ms, itl_p50_ms, itl_p99_ms (null where there was none), tokens_per_s,
        prefill_tokens_per_s, requests_per_s (that ended), preemptions
    handoffs: records of GET /admin/handoffs, live ones first, at most HANDOFFS_LISTED
    handoff_counts: handoffs taken in by outcome, and `held` sources
    recent: the latest requests that ended, latest first, at most RECENT_LISTED, as GET /admin/requests
    prefix_hit_share: of the prompt tokens admitted in the last minute, null without any
    lateness_p99_ms: how late tokens were written against the plan, since the start; null without any
    """

    model: str
    state: str
    worker_type: str
    speedup_ratio: float
    block_size: int
    max_num_seqs: int | None
    now_ms: float
    ranks: list[dict[str, Any]]
    running: list[dict[str, Any]]
    waiting: list[dict[str, Any]]
    running_total: int
    waiting_total: int
    curve: list[dict[str, Any]]
    handoffs: list[dict[str, Any]]
    handoff_counts: dict[str, int]
    recent: list[dict[str, Any]]
    ended_total: int
    prefix_hit_share: float | None
    lateness_p99_ms: float | None
    saturated: bool


def install_curves(state: AppState) -> None:
    """Needs the tracker installed before."""
    curves = Curves()
    tracker_of(state).listeners.append(curves)
    state.extras[STATE_KEY] = curves


async def frame(state: AppState) -> Frame:
    """The server now. Costs about as much as a request; call it only while somebody looks."""
    engine, tracker = state.engine, tracker_of(state)
    curves: Curves = state.extras[STATE_KEY]
    args = engine.args
    looks = await look_at_ranks(state)
    now_ms = tracker.now_ms()
    running, waiting = _requests(state, now_ms)
    ranks = [_rank(state, rank, look) for rank, look in enumerate(looks)]
    pd = pd_service(state)
    return Frame(
        model=state.settings.model_names[0],
        state=str(engine.state),
        worker_type=str(args.worker_type),
        speedup_ratio=args.speedup_ratio,
        block_size=args.block_size,
        max_num_seqs=args.max_num_seqs,
        now_ms=now_ms,
        ranks=ranks,
        running=running,
        waiting=waiting,
        running_total=sum(look.metrics.running_requests for look in looks),
        waiting_total=sum(look.metrics.waiting_requests for look in looks),
        curve=curves.points(now_ms),
        handoffs=[record.as_json() for record in pd.book.all()[:HANDOFFS_LISTED]],
        handoff_counts={outcome.value: pd.counters.loads[outcome] for outcome in HandoffOutcome}
        | {"held": pd.holds.held},
        recent=[record.summary(now_ms) for record in tracker.recent(RECENT_LISTED)],
        ended_total=curves.ended_total,
        prefix_hit_share=curves.hit_share(now_ms),
        lateness_p99_ms=state.dispatcher.lateness.quantile_ms(0.99),
        saturated=any(rank["loop"].get("saturated", False) for rank in ranks),
    )


def _requests(state: AppState, now_ms: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The oldest running and the oldest waiting requests."""
    running: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for record in tracker_of(state).live.values():
        shown = running if record.running else waiting
        if len(shown) < LISTED:
            shown.append(_request(record, now_ms))
        elif len(running) == len(waiting) == LISTED:
            break
    return running, waiting


def _request(record: RequestRecord, now_ms: float) -> dict[str, Any]:
    summary = record.summary(now_ms)
    summary["planned_tokens"] = record.planned_tokens
    summary["computed_tokens"] = record.computed_tokens
    return summary


def _rank(state: AppState, dp_rank: int, look: RankLook) -> dict[str, Any]:
    stats = state.engine.rank_stats(dp_rank)
    known = dataclasses.is_dataclass(stats) and not isinstance(stats, type)
    return {
        "dp_rank": dp_rank,
        "metrics": look.metrics._asdict(),
        "loop": dataclasses.asdict(stats) if known else {},
        "blocks": {"total": look.metrics.total_blocks, **look.blocks},
        "tiers": None if look.offload is None else dataclasses.asdict(look.offload),
    }
