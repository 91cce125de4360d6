"""GET /admin/events/kv, /fpm, /lifecycle: the engine's events as SSE, resumable by Last-Event-ID.

Owns the reading of the reader's place and the end of the streams at shutdown. The records themselves are
`event_streams`'.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from sse_starlette import EventSourceResponse

from app.admin.event_streams import EventStreams, fpm_body, kv_body, lifecycle_body, sse_records
from app.errors import bad_request
from app.event_ring import EventRing
from app.ops.metrics_json import add_section
from app.state import AppState

router = APIRouter(prefix="/admin/events", tags=["Admin"])

_STREAMS = "event_streams"
# Longer than the server lets open streams go on: they end by themselves when the rings are closed.
_LIBRARY_GRACE_S = 60.0

LastEventId = Annotated[
    str | None,
    Header(description="Go on after this id; `last_event_id` in the query says the same."),
]
LastEventIdParam = Annotated[str | None, Query(alias="last_event_id", description="As Last-Event-ID.")]
From = Annotated[
    Literal["oldest", "now"],
    Query(alias="from", description="Where to begin without an id: at the oldest event kept, or now."),
]
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "Records with id, event and data."}
}


def install_event_streams(state: AppState) -> EventStreams:
    """Make the streams of one server, let the dispatcher fill them and shutdown end them."""
    streams = EventStreams(state.engine.args.dp_size, started_at_s=state.started_at_s)
    state.extras[_STREAMS] = streams
    state.dispatcher.add_observer(streams)
    state.stream_enders.append(streams.close)
    add_section(state, "fpm", lambda _: streams.latest_fpm_figures())
    return streams


def event_streams(request: Request) -> EventStreams:
    state: AppState = request.app.state.mocker
    streams: EventStreams = state.extras[_STREAMS]
    return streams


@router.get("/kv", responses=_ANSWERS, response_class=EventSourceResponse, summary="KV cache events")
async def kv_events(
    request: Request,
    last_event_id: LastEventId = None,
    last_event_id_param: LastEventIdParam = None,
    begin: From = "oldest",
    token_ids: Annotated[bool, Query(description="Show the token ids of stored blocks.")] = False,
) -> EventSourceResponse:
    """Blocks stored in and removed from each tier, in the order of each rank's `event_id`."""
    ring = event_streams(request).kv
    after_id = _after_id(ring, last_event_id or last_event_id_param, begin)
    return _stream(sse_records(ring, after_id, partial(kv_body, token_ids=token_ids)))


@router.get("/fpm", responses=_ANSWERS, response_class=EventSourceResponse, summary="Forward-pass metrics")
async def fpm_events(
    request: Request,
    last_event_id: LastEventId = None,
    last_event_id_param: LastEventIdParam = None,
    begin: From = "oldest",
) -> EventSourceResponse:
    """One record per forward pass of each rank."""
    ring = event_streams(request).fpm
    after_id = _after_id(ring, last_event_id or last_event_id_param, begin)
    return _stream(sse_records(ring, after_id, fpm_body))


@router.get("/lifecycle", responses=_ANSWERS, response_class=EventSourceResponse, summary="Handoff events")
async def lifecycle_events(
    request: Request,
    last_event_id: LastEventId = None,
    last_event_id_param: LastEventIdParam = None,
    begin: From = "oldest",
) -> EventSourceResponse:
    """Sources held, destinations reserved, and what of both expired."""
    ring = event_streams(request).lifecycle
    after_id = _after_id(ring, last_event_id or last_event_id_param, begin)
    return _stream(sse_records(ring, after_id, lifecycle_body))


def _after_id(ring: EventRing[Any], given: str | None, begin: str) -> int:
    if given is None:
        return 0 if begin == "oldest" else ring.last_id
    if not (given.isascii() and given.isdigit()) or len(given) > 20:
        raise bad_request(
            f"Last-Event-ID is {given!r}; it must be the number that the last record had as its id.",
            "last_event_id",
        )
    return int(given)


def _stream(records: AsyncIterator[bytes]) -> EventSourceResponse:
    return EventSourceResponse(records, sep="\n", shutdown_grace_period=_LIBRARY_GRACE_S)
