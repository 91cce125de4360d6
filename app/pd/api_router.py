"""The routes that decode servers and routers call at a prefill server: claim, release or cancel a hold.

A hold's id is unguessable and serves as the key. Must not decide anything that `holds` decides.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from starlette.types import Receive, Scope, Send

from app.errors import error_object
from app.pd.holds import Hold, HoldState
from app.pd.params import KvLoadError
from app.pd.service import Pd, PdService
from mocker_core.errors import EngineDeadError

router = APIRouter(prefix="/pd/holds", tags=["P/D peers"])


HoldId = Annotated[str, Path(description="`remote_request_id` of the transfer parameters.")]


class Claim(BaseModel):
    """Who claims, and which prompt's KV it expects."""

    engine_id: str = Field(description="`remote_engine_id` of the transfer parameters.")
    prompt_tokens: int
    prompt_hash: str = Field(description="64-bit hash of the prompt's token ids, in hex.")


class HoldResult(BaseModel):
    result: Literal["applied", "noop"]


@router.post("/{hold_id}/claim", summary="Claim a hold and keep its lease", response_class=Response)
async def claim(hold_id: HoldId, body: Claim, pd: Pd) -> Response:
    """Answers one JSON line at once and another when the hold ends. A caller that hangs up before it
    released the hold gives it up."""
    try:
        hold = pd.holds.claim(hold_id, body.engine_id, body.prompt_tokens, _number(body.prompt_hash))
    except KvLoadError as error:
        api = error.as_api_error()
        content = {"fault": error.fault, "error": error_object(api, "vllm")}
        return JSONResponse(content, api.status)
    if (record := pd.book.find_open(hold_id)) is not None:
        pd.book.note(record, "claimed", "claimed")
    return LeaseAnswer(pd, hold)


@router.post("/{hold_id}/release", summary="The KV arrived: free the source", response_model=HoldResult)
async def release(hold_id: HoldId, pd: Pd) -> Any:
    return {"result": await pd.end_hold(hold_id, HoldState.RELEASED)}


@router.post("/{hold_id}/cancel", summary="Nobody wants the KV: free the source", response_model=HoldResult)
async def cancel(hold_id: HoldId, pd: Pd) -> Any:
    return {"result": await pd.end_hold(hold_id, HoldState.CANCELLED)}


class LeaseAnswer(Response):
    """Stays open as long as the hold lives; watches for the caller's end."""

    media_type = "application/x-ndjson"

    def __init__(self, pd: PdService, hold: Hold) -> None:
        super().__init__()
        self._pd = pd
        self._hold = hold

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hold = self._hold
        headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
        async with asyncio.TaskGroup() as group:
            gone = group.create_task(_wait_gone(receive))
            over = group.create_task(hold.over.wait())
            settled = group.create_task(hold.settled.wait())
            await asyncio.wait([gone, settled], return_when=asyncio.FIRST_COMPLETED)
            if not gone.done():
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                granted = {"prompt_tokens": hold.prompt_tokens, "transfer_delay_ms": hold.transfer_delay_ms}
                await send(_line(granted, more=True))
                await asyncio.wait([gone, over], return_when=asyncio.FIRST_COMPLETED)
            if over.done():
                await send(_line({"end": hold.state}, more=False))
            else:
                with suppress(EngineDeadError):  # then its blocks are gone with it
                    await self._pd.end_hold(hold.handoff_id, HoldState.CANCELLED)
            for task in (gone, over, settled):
                task.cancel()


async def _wait_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _line(value: dict[str, Any], *, more: bool) -> dict[str, Any]:
    return {"type": "http.response.body", "body": orjson.dumps(value) + b"\n", "more_body": more}


def _number(text: str) -> int | None:
    try:
        return int(text, 16)
    except ValueError:
        return None
