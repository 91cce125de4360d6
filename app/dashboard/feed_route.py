"""GET /admin/events/dashboard: frames for the live page, a few a second, while somebody listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from sse_starlette import EventSourceResponse

from app.dashboard.feed import frame
from app.state import AppState, State

router = APIRouter(tags=["Admin"])

FRAMES_PER_S = 5.0
_LIBRARY_GRACE_S = 0.1


@router.get(
    "/admin/events/dashboard",
    summary="What the server does now, five times a second",
    response_class=EventSourceResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def dashboard_events(
    state: State,
    limit: Annotated[int | None, Query(ge=1, description="Frames to send; default: until you leave.")] = None,
) -> EventSourceResponse:
    """Each record's data is one `Frame` as JSON (docs/explain.md); a slow reader gets fewer frames."""
    return EventSourceResponse(_frames(state, limit), sep="\n", shutdown_grace_period=_LIBRARY_GRACE_S)


async def _frames(state: AppState, limit: int | None) -> AsyncIterator[bytes]:
    sent = 0
    while not state.shutting_down:
        yield b"data: " + orjson.dumps(await frame(state)) + b"\n\n"
        sent += 1
        if sent == limit:
            return
        await asyncio.sleep(1.0 / FRAMES_PER_S)
