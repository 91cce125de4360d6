"""GET /admin/events/kv, /fpm, /lifecycle: the engine's events as SSE, resumable by Last-Event-ID.

Owns the reading of the reader's place and the end of the streams at shutdown. The records themselves are
`event_streams`'.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends, Header, Query, Request
from sse_starlette import EventSourceResponse

from app.admin.event_ring import EventRing
from app.admin.event_streams import EventStreams, fpm_body, kv_body, lifecycle_body, sse_records
from app.errors import bad_request
from app.ops.metrics_json import add_section
from app.state import AppState

T = TypeVar("T")

router = APIRouter(prefix="/admin/events", tags=["Admin"])

_STREAMS = "event_streams"
# Longer than the server lets open streams go on: they end by themselves when the rings are closed.
_LIBRARY_GRACE_S = 60.0

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


async def _reading_place(
    last_event_id: Annotated[
        str | None,
        Header(description="Go on after this id; `last_event_id` in the query says the same."),
    ] = None,
    last_event_id_param: Annotated[
        str | None, Query(alias="last_event_id", description="As Last-Event-ID.")
    ] = None,
    begin: Annotated[
        Literal["oldest", "now"],
        Query(alias="from", description="Where to begin without an id: at the oldest event kept, or now."),
    ] = "oldest",
) -> int | None:
    """The id to go on after; 0: from the oldest event on, None: from now on."""
    given = last_event_id or last_event_id_param
    if given is None:
        return 0 if begin == "oldest" else None
    if not (given.isascii() and given.isdigit()) or len(given) > 20:
        raise bad_request(
            f"Last-Event-ID is {given!r:.60}; it must be the number that the last record had as its id.",
            "last_event_id",
        )
    return int(given)


Place = Annotated[int | None, Depends(_reading_place)]


@router.get("/kv", responses=_ANSWERS, response_class=EventSourceResponse, summary="KV cache events")
async def kv_events(
    request: Request,
    place: Place,
    token_ids: Annotated[bool, Query(description="Show the token ids of stored blocks.")] = False,
) -> EventSourceResponse:
    """Blocks stored in and removed from each tier, in the order of each rank's `event_id`."""
    return _stream(event_streams(request).kv, place, partial(kv_body, token_ids=token_ids))


@router.get("/fpm", responses=_ANSWERS, response_class=EventSourceResponse, summary="Forward-pass metrics")
async def fpm_events(request: Request, place: Place) -> EventSourceResponse:
    """One record per forward pass of each rank."""
    return _stream(event_streams(request).fpm, place, fpm_body)


@router.get("/lifecycle", responses=_ANSWERS, response_class=EventSourceResponse, summary="Handoff events")
async def lifecycle_events(request: Request, place: Place) -> EventSourceResponse:
    """Sources held, destinations reserved, and what of both expired."""
    return _stream(event_streams(request).lifecycle, place, lifecycle_body)


def _stream(
    ring: EventRing[T], place: int | None, body: Callable[[T], tuple[str, dict[str, Any]]]
) -> EventSourceResponse:
    records = sse_records(ring, ring.last_id if place is None else place, body)
    return EventSourceResponse(records, sep="\n", shutdown_grace_period=_LIBRARY_GRACE_S)
