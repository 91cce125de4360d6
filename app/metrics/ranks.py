"""A look into each rank's core, for gauges that the published metrics lack. One look, one moment.

Reads the core only in its own task (`Engine.call_core`).
"""

from __future__ import annotations

from msgspec import Struct

from app.state import AppState
from mocker_core.engine.core import EngineCore
from mocker_core.errors import MockerError
from mocker_core.live.protocols import LiveCore
from mocker_core.metrics import MockerMetrics, OffloadStats
from mocker_core.sched.state import RequestStatus


class RankLook(Struct, frozen=True):
    """`deferred` requests wait for KV from elsewhere, not for room. Blocks by state add up to the pool;
    `reserved` ones are held for handoffs (a block that two share counts for each, up to all active ones).
    """

    metrics: MockerMetrics
    deferred: int = 0
    blocks: dict[str, int] = {}
    offload: OffloadStats | None = None


async def look_at_ranks(state: AppState) -> list[RankLook]:
    """Every rank now; while the engine is not ready, what it published last."""
    return [await _look(state, rank) for rank in range(state.engine.args.dp_size)]


async def _look(state: AppState, dp_rank: int) -> RankLook:
    if state.engine.state == "ready":
        try:
            return await state.engine.call_core(dp_rank, _read)
        except MockerError:
            pass  # it stopped meanwhile
    return RankLook(state.engine.metrics(dp_rank))


def _read(core: LiveCore, now_ms: float) -> RankLook:
    metrics = core.metrics()
    if not isinstance(core, EngineCore):
        return RankLook(metrics)
    pool, offload = core.pool, core.offload
    deferred = core.handoffs.num_waiting_destinations + (offload.num_parked if offload is not None else 0)
    held = pool.used_blocks - pool.in_copy_blocks
    reserved = min(held, _reserved_blocks(core)) if core.args.controls_enabled else 0
    blocks = {
        "active": held - reserved,
        "reserved": reserved,
        "cached": pool.inactive_blocks,
        "in_copy": pool.in_copy_blocks,
        "free": pool.free_blocks,
    }
    return RankLook(metrics, min(deferred, metrics.waiting_requests), blocks, core.offload_stats())


def _reserved_blocks(core: EngineCore) -> int:
    """Of sources that are held and of destinations that are not decoding yet."""
    states = (RequestStatus.RUNNING, RequestStatus.FINISHED)
    return sum(
        request.table.num_blocks
        for request in core.requests.values()
        if request.status is RequestStatus.HELD
        or (request.destination_of is not None and request.status not in states)
    )
