"""One request's KV from another server into this one: claim, reserve, transfer, activate, release.

Runs the coordinator's source-first order with the remote hold as the source. Owns what the client gets if
that fails. Must not know how answers look.
"""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from typing import TYPE_CHECKING

from app.errors import ApiError
from app.openai.choice import ChoiceRun
from app.pd.book import HandoffRecord
from app.pd.params import KvLoadError, KvLoadFault, RemoteSource
from app.pd.peer import SourceLease
from mocker_core.engine_args import KvTransferTimingMode
from mocker_core.errors import MockerError
from mocker_core.events import DestinationReserved, SchedulerLifecycleEvent, SourceHeld
from mocker_core.handoff.coordinator import (
    AckOutcome,
    Failed,
    HandoffAction,
    HandoffCoordinator,
    HandoffOutcome,
    HandoffSide,
)
from mocker_core.handoff.timing import TransferTiming
from mocker_core.hashing import token_hash
from mocker_core.live.handoff_driver import Ack, HandoffDriver, LocalDestination
from mocker_core.request import DirectRequest, HandoffId

if TYPE_CHECKING:
    from app.pd.service import PdService


class DecodeHandoff:
    """One decode request whose KV is at `source`: `run()` it once, `cancel()` it when the client leaves."""

    def __init__(
        self, pd: PdService, request: DirectRequest, run: ChoiceRun, source: RemoteSource, dp_rank: int | None
    ) -> None:
        self._pd = pd
        self._request = request
        self._run = run
        self._dp_rank = dp_rank
        self._url = source.base_url
        self._handoff_id = HandoffId(uuid.uuid4().hex)
        self._lease = SourceLease(pd.client, source)
        self._source = _LeasedSource(self)
        coordinator = HandoffCoordinator(self._handoff_id, timing=TransferTiming.from_args(pd.args))
        self._record = pd.book.open(
            HandoffRecord(
                handoff_id=self._handoff_id,
                request_id=request.request_id,
                run_by="coordinator",
                order=coordinator.order,
                source={"url": source.base_url, "handoff_id": source.handoff_id},
                destination={},
            )
        )
        self._driver = HandoffDriver(
            coordinator,
            self._source,
            _Destination(self),
            session_timeout_ms=pd.args.handoff_session_timeout_ms,
            note=self._note,
        )
        self._moved_tokens = 0
        self._load_error: KvLoadError | None = None
        self._refusal: MockerError | None = None

    def cancel(self) -> None:
        """The client went away."""
        self._pd.engine.cancel_soon(self._request.request_id)
        self._driver.cancel("The client left.")

    async def run(self) -> None:
        pd = self._pd
        pd.lifecycle.subscribe(self._handoff_id, self._observe)
        try:
            end = await self._driver.run()
        finally:
            pd.lifecycle.unsubscribe(self._handoff_id)
            await self._source.stop_watching()
            await self._lease.close()
        assert end.outcome is not None
        pd.counters.loads[end.outcome] += 1
        pd.book.close(self._record, end.outcome, end.reason)
        if end.outcome is HandoffOutcome.COMPLETED:
            pd.counters.transferred_tokens += self._moved_tokens
        elif end.outcome is not HandoffOutcome.CANCELLED:
            self._give_up(end)

    async def claim(self) -> Ack:
        """Claim the remote hold; from then on its loss is a fact of this handoff."""
        tokens = self._request.tokens
        try:
            await self._lease.claim(len(tokens), token_hash(tokens))
        except KvLoadError as error:
            self._load_error = error
            lost = error.fault is KvLoadFault.UNREACHABLE
            return Ack(AckOutcome.LOST if lost else AckOutcome.REFUSED, str(error))
        delay_ms = self._lease.transfer_delay_ms
        self._driver.observe(SourceHeld(self._handoff_id, self._request.request_id, delay_ms, len(tokens)))
        return Ack(AckOutcome.APPLIED)

    def lost(self, reason: str) -> None:
        """The source is gone though nobody here ended its hold."""
        message = f"The prefill server {self._url} was lost during the transfer: {reason}."
        self._load_error = KvLoadError(KvLoadFault.BROKEN, message)
        self._driver.observe(Failed(HandoffSide.SOURCE, message))

    def refused(self, error: MockerError) -> None:
        self._refusal = error

    @property
    def lease(self) -> SourceLease:
        return self._lease

    @property
    def local(self) -> LocalDestination:
        return LocalDestination(self._pd.engine, self._handoff_id, self._request, self._dp_rank)

    def _observe(self, event: SchedulerLifecycleEvent) -> None:
        if isinstance(event, DestinationReserved):
            missing_only = self._pd.args.kv_transfer_timing_mode is KvTransferTimingMode.DESTINATION_MISSING
            whole = self._request.num_prompt_tokens
            self._moved_tokens = event.transferable_prompt_tokens if missing_only else whole
        self._driver.observe_lifecycle(event)

    def _note(self, text: str) -> None:
        self._pd.book.note(self._record, text, self._driver.coordinator.state)

    def _give_up(self, end: HandoffAction) -> None:
        """The KV did not come: compute it here, or tell the client, as --kv-load-failure-policy says."""
        pd, request = self._pd, self._request
        if request.request_id not in pd.dispatcher:
            return
        error: Exception
        if self._load_error is not None:
            pd.counters.load_failures[self._load_error.fault] += 1
            if pd.settings.kv_load_failure_policy == "recompute":
                try:
                    self._run.dp_rank = pd.engine.submit(
                        dataclasses.replace(request, local=True), self._dp_rank
                    )
                except MockerError as refusal:
                    error = refusal
                else:
                    pd.counters.recomputed += 1
                    return
            else:
                error = self._load_error.as_api_error()
        elif self._refusal is not None:
            error = self._refusal
        else:
            error = ApiError(
                503, f"The handoff failed: {end.reason}", code="handoff_failed", err_type="server_error"
            )
        pd.dispatcher.fail(request.request_id, error)
        pd.dispatcher.flush()


class _LeasedSource:
    """`SourceEnd` over a lease, whose loss is watched until this side itself ends the hold."""

    def __init__(self, handoff: DecodeHandoff) -> None:
        self._handoff = handoff
        self._watch: asyncio.Task[None] | None = None
        self._ending = False

    async def submit_prefill(self) -> Ack:
        ack = await self._handoff.claim()
        if ack.outcome is AckOutcome.APPLIED:
            self._watch = asyncio.get_running_loop().create_task(self._watch_lease())
        return ack

    async def release(self) -> Ack:
        self._ending = True
        return await self._handoff.lease.release()

    async def cancel(self) -> Ack:
        self._ending = True
        return await self._handoff.lease.cancel()

    async def stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def _watch_lease(self) -> None:
        reason = await self._handoff.lease.wait_broken()
        if not self._ending:
            self._handoff.lost(reason)


class _Destination:
    """`DestinationEnd` on this server that remembers why it was refused."""

    def __init__(self, handoff: DecodeHandoff) -> None:
        self._handoff = handoff

    async def reserve(self) -> Ack:
        ack = await self._handoff.local.reserve()
        if ack.error is not None:
            self._handoff.refused(ack.error)
        return ack

    async def activate(self) -> Ack:
        return await self._handoff.local.activate()

    async def cancel(self) -> Ack:
        return await self._handoff.local.cancel()
