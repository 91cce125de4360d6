"""GET /admin/requests, /admin/requests/{id}, /admin/trace: what happened to requests, and when."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Query, Response

from app.errors import ApiError
from app.pd.service import pd_service
from app.state import AppState, State
from app.timeline.live_trace import live_trace
from app.timeline.record import RequestRecord
from app.timeline.tracker import tracker_of

router = APIRouter(prefix="/admin", tags=["Timeline"])

# What an X-Request-Id becomes in the engine.
_ID_FORMS = ("{}", "chatcmpl-{}", "cmpl-{}", "0_{}", "0_chatcmpl-{}", "0_cmpl-{}")


@router.get("/requests", summary="Live requests, and the latest that ended")
async def list_requests(
    state: State, limit: Annotated[int, Query(ge=1, le=10_000, description="Most of each kind.")] = 100
) -> dict[str, Any]:
    """Live ones oldest first, ended ones latest first; times are those of the engine's plan, in ms."""
    tracker = tracker_of(state)
    now_ms = tracker.now_ms()
    live = list(tracker.live.values())[:limit]
    return {
        "engine_time_ms": now_ms,
        "live_total": len(tracker.live),
        "live": [record.summary(now_ms) for record in live],
        "ended": [record.summary(now_ms) for record in tracker.recent(limit)],
    }


@router.get("/requests/{request_id}", summary="One request's timeline")
async def show_request(
    state: State,
    request_id: Annotated[
        str, Path(description="The answer's `id`, its `X-Request-Id`, or the engine's id of one choice.")
    ],
) -> dict[str, Any]:
    """`parts_ms` add up to `e2e_ms` exactly. Of several choices the first one; `siblings` are the others."""
    record = find_record(state, request_id)
    if record is None:
        kept = state.settings.timeline_requests
        raise ApiError(
            404,
            f"No request {request_id} is known; live ones and the last {kept} are (--timeline-requests).",
        )
    handoff = next((it for it in pd_service(state).book.all() if it.request_id == record.request_id), None)
    return record.as_json(tracker_of(state).now_ms(), None if handoff is None else handoff.as_json())


@router.get("/trace", summary="The last seconds in Chrome's trace format, for Perfetto")
async def trace(
    state: State,
    seconds: Annotated[
        float, Query(gt=0, le=3600, description="How far back; what is kept is bounded.")
    ] = 30,
) -> Response:
    """Open it in ui.perfetto.dev or chrome://tracing."""
    events = live_trace(state, seconds)
    body = await asyncio.to_thread(orjson.dumps, events)
    headers = {"Content-Disposition": 'attachment; filename="mocker-trace.json"'}
    return Response(body, media_type="application/json", headers=headers)


def find_record(state: AppState, request_id: str) -> RequestRecord | None:
    tracker = tracker_of(state)
    found = (tracker.find(form.format(request_id)) for form in _ID_FORMS)
    return next((record for record in found if record is not None), None)
