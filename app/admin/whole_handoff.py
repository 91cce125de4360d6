"""POST /admin/handoffs: a whole handoff run by the coordinator between ranks of this server or others.

Owns the choice of the two ends and the answer. The order of actions is the coordinator's.
"""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Header
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from app.admin.handoff_requests import HandoffRequest, RecordSink, direct_request
from app.errors import bad_request
from app.pd.book import HandoffRecord
from app.pd.service import Pd, PdService, pd_service
from app.route.backends import checked_url
from app.state import AppState, State
from mocker_core.errors import ArgumentError, DuplicateIdError, WrongWorkerTypeError
from mocker_core.events import SchedulerLifecycleEvent
from mocker_core.handoff.coordinator import (
    AckOutcome,
    Failed,
    HandoffCoordinator,
    HandoffSide,
)
from mocker_core.handoff.coordinator_table import HandoffOrder
from mocker_core.handoff.timing import TransferTiming
from mocker_core.live.handoff_driver import (
    Ack,
    DestinationEnd,
    HandoffDriver,
    LocalDestination,
    LocalSource,
    SourceEnd,
)
from mocker_core.request import DirectRequest, HandoffId, RequestId

router = APIRouter(prefix="/admin", tags=["Handoff"])


class SideRef(BaseModel):
    """Where one side is."""

    url: Annotated[str | None, Field(description="Base URL of another mocker server.")] = None
    dp_rank: Annotated[int | None, Field(ge=0, description="Rank there. Default: the least loaded.")] = None


class WholeHandoff(BaseModel):
    handoff_id: str | None = Field(None, min_length=1, max_length=100, description="Default: a new one.")
    order: HandoffOrder = HandoffOrder.SOURCE_FIRST
    request: HandoffRequest
    source: SideRef = SideRef()
    destination: SideRef = SideRef()
    wait: bool = Field(True, description="Answer when the handoff is over (200), else at once (202).")


class _Side(SourceEnd, DestinationEnd, Protocol):
    async def cancel(self) -> Ack: ...

    async def close(self) -> None: ...


@router.post("/handoffs", summary="Run a whole handoff between two ranks or two servers")
async def run_handoff(
    body: WholeHandoff, state: State, pd: Pd, authorization: Annotated[str | None, Header()] = None
) -> JSONResponse:
    """The handoff's record with its timeline. Other servers get this request's Authorization header."""
    handoff_id = HandoffId(body.handoff_id or uuid.uuid4().hex)
    request = await direct_request(state, body.request, f"handoff-{handoff_id}")
    if pd.book.find_open(handoff_id) is not None:
        raise DuplicateIdError(f"handoff id {handoff_id} is in use; send a new id.")
    run = _WholeRun(state, pd, body, handoff_id, request, authorization)
    task = pd.tasks.spawn(run.run(), f"handoff {handoff_id}")
    if body.wait:
        await asyncio.shield(task)
    return JSONResponse(run.record.as_json(), 200 if body.wait else 202)


class _WholeRun:
    """One whole handoff. Each side has ids of its own, since both may be on one server."""

    def __init__(
        self,
        state: AppState,
        pd: PdService,
        body: WholeHandoff,
        handoff_id: HandoffId,
        request: DirectRequest,
        authorization: str | None,
    ) -> None:
        self._state, self._pd, self._request = state, pd, request
        self._handoff_id = handoff_id
        self._headers = {"authorization": authorization} if authorization else {}
        refs = {HandoffSide.SOURCE: body.source, HandoffSide.DESTINATION: body.destination}
        self.record = HandoffRecord(
            handoff_id=handoff_id,
            request_id=request.request_id,
            run_by="coordinator",
            order=body.order,
            source=refs[HandoffSide.SOURCE].model_dump(),
            destination=refs[HandoffSide.DESTINATION].model_dump(),
        )
        self._sides = {side: self._make_side(side, ref) for side, ref in refs.items()}
        self._driver = HandoffDriver(
            HandoffCoordinator(handoff_id, body.order, TransferTiming.from_args(pd.args)),
            self._sides[HandoffSide.SOURCE],
            self._sides[HandoffSide.DESTINATION],
            session_timeout_ms=pd.args.handoff_session_timeout_ms,
            note=lambda text: pd.book.note(self.record, text, self._driver.coordinator.state),
        )
        pd.book.open(self.record)

    async def run(self) -> None:
        pd = self._pd
        try:
            end = await self._driver.run()
        except Exception:
            pd.book.close(self.record, "failed", "An internal error; the server's log has the details.")
            raise
        finally:
            for side in self._sides.values():
                await side.close()
        assert end.outcome is not None
        pd.counters.loads[end.outcome] += 1
        pd.book.close(self.record, end.outcome, end.reason)

    def told(self, side: HandoffSide, event: SchedulerLifecycleEvent | Failed) -> None:
        """A fact of one side, under the coordinator's id."""
        if not isinstance(event, Failed):
            facts = {
                key: value for key, value in dataclasses.asdict(event).items() if not key.endswith("_id")
            }
            shown = self.record.source if side is HandoffSide.SOURCE else self.record.destination
            assert shown is not None
            shown.update(facts)
        self._driver.observe(event)

    def _make_side(self, side: HandoffSide, ref: SideRef) -> _Side:
        engine_id = f"{self._handoff_id}.{side}"
        if ref.url is None:
            if not self._pd.args.controls_enabled:
                raise WrongWorkerTypeError(
                    f"The {side} can't be this server, which is aggregated; name another one's url, or start "
                    "this one with --disaggregation-mode prefill or --disaggregation-mode decode."
                )
            own_id = RequestId(f"{self._request.request_id}.{side}")
            request = dataclasses.replace(self._request, request_id=own_id)
            return _LocalSide(self, self._state, side, HandoffId(engine_id), request, ref.dp_rank)
        from app.pd.remote_side import RemoteSide

        try:
            url = checked_url(ref.url)
        except ArgumentError as error:
            raise bad_request(str(error), f"{side}.url") from None
        remote = RemoteSide(
            self._pd.client,
            url,
            side,
            handoff_id=engine_id,
            told_as=self._handoff_id,
            request=_as_json(self._request),
            dp_rank=ref.dp_rank,
            headers=self._headers,
        )
        remote.observe = lambda event: self.told(side, event)
        return remote


class _LocalSide:
    """A rank of this server as either side; its tokens are only noted."""

    def __init__(
        self,
        run: _WholeRun,
        state: AppState,
        side: HandoffSide,
        handoff_id: HandoffId,
        request: DirectRequest,
        dp_rank: int | None,
    ) -> None:
        self._run, self._state, self._side = run, state, side
        self._handoff_id, self._request = handoff_id, request
        self._source = LocalSource(state.engine, handoff_id, request, dp_rank)
        self._destination = LocalDestination(state.engine, handoff_id, request, dp_rank)

    async def submit_prefill(self) -> Ack:
        self._listen()
        return self._begun(await self._source.submit_prefill())

    async def reserve(self) -> Ack:
        self._listen()
        return self._begun(await self._destination.reserve())

    async def activate(self) -> Ack:
        return await self._destination.activate()

    async def release(self) -> Ack:
        return await self._source.release()

    async def cancel(self) -> Ack:
        end = self._source if self._side is HandoffSide.SOURCE else self._destination
        ack = await end.cancel()
        self._state.dispatcher.forget(self._request.request_id)
        return ack

    async def close(self) -> None:
        pd_service(self._state).lifecycle.unsubscribe(self._handoff_id)

    def _listen(self) -> None:
        pd = pd_service(self._state)
        pd.lifecycle.subscribe(self._handoff_id, self._told)
        sink = RecordSink(pd.book, self._run.record, ends_record=False)
        self._state.dispatcher.register(self._request.request_id, sink)

    def _begun(self, ack: Ack) -> Ack:
        if ack.outcome is not AckOutcome.APPLIED:
            self._state.dispatcher.forget(self._request.request_id)
        return ack

    def _told(self, event: SchedulerLifecycleEvent) -> None:
        self._run.told(self._side, dataclasses.replace(event, handoff_id=self._run.record.handoff_id))


def _as_json(request: DirectRequest) -> dict[str, Any]:
    """The same prompt and length for another server, which plans its own tokens."""
    return {
        "prompt_token_ids": list(request.tokens),
        "max_tokens": request.num_output_tokens,
        "ignore_eos": True,
        "priority": -request.priority,
    }
