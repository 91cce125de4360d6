"""The handoff commands by hand, what is known of handoffs, and cancelling any request: /admin/handoff*, ...

Owns the bodies and the order of registering and commanding. What commands do is the engine's.
"""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from app.admin.handoff_requests import HandoffRequest, RecordSink, direct_request
from app.errors import ApiError
from app.pd.book import HandoffRecord
from app.pd.holds import HoldState
from app.pd.service import Pd, PdService
from app.state import AppState, State
from mocker_core.commands import (
    ActivateDestination,
    Applied,
    CancelDestination,
    CancelSource,
    ReleaseSource,
    ReserveDestination,
    SubmitHandoffPrefill,
)
from mocker_core.errors import DuplicateIdError, WrongWorkerTypeError
from mocker_core.request import DirectRequest, HandoffId

router = APIRouter(prefix="/admin", tags=["Handoff"])

# Those about a handoff that has begun.
_LaterCommand = ActivateDestination | CancelDestination | ReleaseSource | CancelSource


class NewHandoff(BaseModel):
    """A command that begins one side of a handoff."""

    handoff_id: str | None = Field(None, min_length=1, max_length=128, description="Default: a new one.")
    request_id: str | None = Field(None, min_length=1, max_length=256, description="Default: a new one.")
    dp_rank: int | None = Field(None, ge=0, description="Default: the least loaded rank.")
    request: HandoffRequest


class HandoffRef(BaseModel):
    handoff_id: str = Field(min_length=1, max_length=128)


class Accepted(BaseModel):
    handoff_id: str
    request_id: str
    result: Literal["submitted", "destination_accepted"]


class CommandAnswer(BaseModel):
    result: Literal["applied", "noop"] = Field(description="noop: there was nothing to do.")


@router.post("/handoff/prefill", status_code=202, summary="Begin a source: prefill and hold")
async def prefill(body: NewHandoff, state: State, pd: Pd) -> Accepted:
    """Its blocks stay held until released, cancelled or expired; `source_held` says when they are."""
    record, request = await _begin(state, body, side="source")
    await _command(state, pd, SubmitHandoffPrefill(record.handoff_id, request), body.dp_rank, record)
    return Accepted(handoff_id=record.handoff_id, request_id=record.request_id, result="submitted")


@router.post("/handoff/destination/reserve", status_code=202, summary="Begin a destination: queue for blocks")
async def reserve(body: NewHandoff, state: State, pd: Pd) -> Accepted:
    """Answered at once; `destination_reserved` says when the blocks were granted."""
    record, request = await _begin(state, body, side="destination")
    await _command(state, pd, ReserveDestination(record.handoff_id, request), body.dp_rank, record)
    return Accepted(handoff_id=record.handoff_id, request_id=record.request_id, result="destination_accepted")


@router.post("/handoff/destination/activate", summary="The KV is in place: let the destination decode")
async def activate(body: HandoffRef, state: State, pd: Pd) -> CommandAnswer:
    return await _tell(state, pd, ActivateDestination(HandoffId(body.handoff_id)), "activated", ends=False)


@router.post("/handoff/destination/cancel", summary="Remove a destination, be it pending, reserved or active")
async def cancel_destination(body: HandoffRef, state: State, pd: Pd) -> CommandAnswer:
    return await _tell(state, pd, CancelDestination(HandoffId(body.handoff_id)), "cancelled", ends=True)


@router.post("/handoff/source/release", summary="The KV has arrived elsewhere: free the source")
async def release_source(body: HandoffRef, state: State, pd: Pd) -> CommandAnswer:
    if pd.holds.find(body.handoff_id) is not None:
        return CommandAnswer(result=await pd.end_hold(body.handoff_id, HoldState.RELEASED))
    return await _tell(state, pd, ReleaseSource(HandoffId(body.handoff_id)), "released", ends=True)


@router.post("/handoff/source/cancel", summary="Drop a source, be it running or held")
async def cancel_source(body: HandoffRef, state: State, pd: Pd) -> CommandAnswer:
    if pd.holds.find(body.handoff_id) is not None:
        return CommandAnswer(result=await pd.end_hold(body.handoff_id, HoldState.CANCELLED))
    return await _tell(state, pd, CancelSource(HandoffId(body.handoff_id)), "cancelled", ends=True)


@router.get("/handoffs", summary="Handoffs that live, and the latest that ended")
async def list_handoffs(pd: Pd) -> dict[str, Any]:
    return {"handoffs": [record.as_json() for record in pd.book.all()]}


@router.get("/handoffs/{handoff_id}", summary="One handoff: state, sides, timeline")
async def show_handoff(handoff_id: str, pd: Pd) -> dict[str, Any]:
    record = pd.book.find(handoff_id)
    if record is None:
        raise ApiError(404, f"No handoff {handoff_id} is known here.")
    return record.as_json()


@router.post("/requests/{request_id}/cancel", summary="Cancel a request, whatever it waits for")
async def cancel_request(
    request_id: Annotated[
        str, Path(description="The engine's id: the answer's `id`, or its `X-Request-Id`.")
    ],
    pd: Pd,
) -> CommandAnswer:
    """Its KV is free when this answers, and its client gets an error. Works on every worker type."""
    names = [request_id, f"chatcmpl-{request_id}", f"cmpl-{request_id}"]
    for name in names:
        if await pd.cancel_request(name) == "applied":
            return CommandAnswer(result="applied")
    return CommandAnswer(result="noop")


def check_controls(state: AppState) -> None:
    """Raises WrongWorkerTypeError on an aggregated worker."""
    if not state.engine.args.controls_enabled:
        raise WrongWorkerTypeError(
            "Handoff commands need a prefill or decode worker and this one is aggregated; start the server "
            "with --disaggregation-mode prefill or --disaggregation-mode decode."
        )


async def _begin(
    state: AppState, body: NewHandoff, side: Literal["source", "destination"]
) -> tuple[HandoffRecord, DirectRequest]:
    check_controls(state)
    handoff_id = HandoffId(body.handoff_id or uuid.uuid4().hex)
    request = await direct_request(state, body.request, body.request_id or f"handoff-{uuid.uuid4().hex}")
    record = HandoffRecord(handoff_id=handoff_id, request_id=request.request_id, run_by="commands")
    setattr(record, side, {"dp_rank": body.dp_rank})
    return record, request


async def _command(
    state: AppState,
    pd: PdService,
    command: SubmitHandoffPrefill | ReserveDestination,
    dp_rank: int | None,
    record: HandoffRecord,
) -> None:
    """Send a command that brings a request; a refusal leaves no trace of it."""
    if pd.book.find_open(record.handoff_id) is not None:
        raise DuplicateIdError(f"handoff id {record.handoff_id} is in use; send a new id.")
    if record.request_id in state.dispatcher:
        raise DuplicateIdError(f"request id {record.request_id} is in use; send a new id.")
    pd.book.open(record)
    is_source = isinstance(command, SubmitHandoffPrefill)
    state.dispatcher.register(record.request_id, RecordSink(pd.book, record, ends_record=not is_source))
    pd.book.note(record, "submitted" if is_source else "accepted", "prefilling" if is_source else "pending")
    try:
        await state.engine.command(command, dp_rank)
    except BaseException:
        state.dispatcher.forget(record.request_id)
        pd.book.discard(record)
        raise


async def _tell(
    state: AppState, pd: PdService, command: _LaterCommand, said: str, *, ends: bool
) -> CommandAnswer:
    """Send a command about a handoff that lives; note what it did."""
    check_controls(state)
    record = pd.book.find_open(command.handoff_id)
    effects = await state.engine.command(command)
    if not isinstance(effects.result, Applied):
        return CommandAnswer(result="noop")
    if record is not None:
        pd.book.note(record, said, said)
        if ends:
            pd.book.close(record, said)
            gone = ApiError(410, f"The handoff {record.handoff_id} was {said}.", code="cancelled")
            state.dispatcher.fail(record.request_id, gone)
            state.dispatcher.flush()
    return CommandAnswer(result="applied")
