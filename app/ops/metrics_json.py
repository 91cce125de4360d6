"""GET /admin/metrics: each rank's MockerMetrics by name, lateness, and figures of this process, as JSON.

Other parts add their own section with `add_section`. Must not know Prometheus.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi import APIRouter

from app.lateness import BOUNDS_MS, LatenessHistogram
from app.state import AppState, State

router = APIRouter(tags=["Admin"])

Section = Callable[[AppState], object]
_SECTIONS = "metrics_sections"


def add_section(state: AppState, name: str, section: Section) -> None:
    """`section(state)` becomes the value of `name` in every later answer."""
    state.extras.setdefault(_SECTIONS, {})[name] = section


@router.get("/admin/metrics", summary="Engine, lateness and process figures as JSON")
async def admin_metrics(state: State, ids: bool = False) -> dict[str, Any]:
    """With `ids=true` also the ids of all live requests."""
    engine, dispatcher = state.engine, state.dispatcher
    answer: dict[str, Any] = {
        "engine_time_ms": engine.now_ms(),
        "state": str(engine.state),
        "ranks": [_rank(state, rank) for rank in range(engine.args.dp_size)],
        "requests": {
            "live": len(dispatcher),
            "not_yet_admitted": dispatcher.waiting_for_admission,
            "server_load": state.load,
        },
        "lateness_ms": lateness_figures(dispatcher.lateness),
        "process": process_figures(state),
    }
    if ids:
        answer["requests"]["ids"] = dispatcher.live_ids()
    sections: dict[str, Section] = state.extras.get(_SECTIONS, {})
    for name, section in sections.items():
        answer[name] = section(state)
    return answer


def _rank(state: AppState, rank: int) -> dict[str, Any]:
    figures: dict[str, Any] = state.engine.metrics(rank)._asdict()
    stats = state.engine.rank_stats(rank)
    if dataclasses.is_dataclass(stats) and not isinstance(stats, type):
        figures["loop"] = dataclasses.asdict(stats)
    return figures


def lateness_figures(histogram: LatenessHistogram) -> dict[str, Any]:
    """How late tokens were written against the engine's plan; buckets are cumulative, as `le` bounds."""
    seen = 0
    buckets: dict[str, int] = {}
    for bound, count in zip((*BOUNDS_MS, float("inf")), histogram.counts, strict=True):
        seen += count
        buckets["+Inf" if bound == float("inf") else f"{bound:g}"] = seen
    return {
        "count": histogram.total,
        "sum": histogram.sum_ms,
        "mean": histogram.sum_ms / histogram.total if histogram.total else None,
        "max": histogram.max_ms,
        "p50": histogram.quantile_ms(0.5),
        "p99": histogram.quantile_ms(0.99),
        "buckets": buckets,
    }


def process_figures(state: AppState) -> dict[str, Any]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "pid": os.getpid(),
        "uptime_s": time.time() - state.started_at_s,
        "cpu_s": used.ru_utime + used.ru_stime,
        "rss_bytes": rss_bytes(used.ru_maxrss),
        "open_tasks": len(asyncio.all_tasks()),
        "gc_collections": sum(generation["collections"] for generation in gc.get_stats()),
        "python": sys.version.split()[0],
    }


def rss_bytes(max_rss: int) -> int:
    """Resident memory now; where the system does not say, its greatest value."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return max_rss * (1 if sys.platform == "darwin" else 1024)
    return pages * os.sysconf("SC_PAGE_SIZE")
