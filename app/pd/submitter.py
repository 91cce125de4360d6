"""The way of every request into the engine: plain, as a source for another server, or with its KV from one.

The seam is `app.openai.submit.Submitter`. Must not know how answers look.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from app.openai.choice import ChoiceRun, Outcome
from app.openai.submit import RequestObserver, SubmitContext
from app.pd.book import HandoffRecord
from app.pd.holds import HoldState
from app.pd.params import (
    Address,
    KvLoadError,
    KvLoadFault,
    TransferRole,
    given_handoff_id,
    remote_source,
    source_params,
    transfer_role,
)
from mocker_core.commands import SubmitHandoffPrefill
from mocker_core.errors import EngineDeadError, MockerError
from mocker_core.request import DirectRequest, HandoffId, RequestId

if TYPE_CHECKING:
    from app.pd.decode import DecodeHandoff
    from app.pd.service import PdService


class PdSubmitter(RequestObserver):
    """`Submitter` of a server that may take part in handoffs.

    Of several choices the first one has the handoff; the others are local requests.
    """

    def __init__(self, pd: PdService) -> None:
        self._pd = pd
        self._loading: dict[RequestId, DecodeHandoff] = {}
        self._prefilling: dict[RequestId, HandoffId] = {}

    def submit(self, request: DirectRequest, run: ChoiceRun, context: SubmitContext) -> None:
        params = context.kv_transfer_params
        role = TransferRole.NONE if not params or run.index else transfer_role(params)
        if role is TransferRole.NONE or params is None:
            self._submit_local(request, run, context)
            return
        try:
            self._check_role(role)
            if role is TransferRole.SOURCE:
                self._submit_source(request, run, context, params)
            else:
                self._submit_destination(request, run, context, params)
        except KvLoadError as error:
            counters = self._pd.counters
            counters.load_failures[error.fault] += 1
            if self._pd.settings.kv_load_failure_policy != "recompute":
                raise error.as_api_error() from error
            counters.recomputed += 1
            self._submit_local(request, run, context)

    def cancel(self, run: ChoiceRun) -> None:
        request_id = run.request_id
        loading = self._loading.get(request_id)
        if loading is not None:
            loading.cancel()
            return
        handoff_id = self._prefilling.get(request_id)
        if handoff_id is not None:
            self._pd.holds.end(handoff_id, HoldState.CANCELLED)
        self._pd.engine.cancel_soon(request_id)

    def cancel_loading(self, request_id: str) -> bool:
        """Cancel a request whose KV is still on its way; False if there is none of this id."""
        handoff = self._loading.get(RequestId(request_id))
        if handoff is not None:
            handoff.cancel()
        return handoff is not None

    def fail_all(self) -> None:
        """The server stops: whoever still waits for KV from elsewhere gets an error."""
        for request_id, handoff in list(self._loading.items()):
            self._pd.dispatcher.fail(request_id, EngineDeadError("The server is stopping."))
            handoff.cancel()
        self._pd.dispatcher.flush()

    def on_request_start(self, run: ChoiceRun) -> None: ...

    def on_request_end(self, run: ChoiceRun) -> None:
        """A prefill that did not complete (rejected, say) leaves nothing to hold."""
        handoff_id = self._prefilling.get(run.request_id)
        if handoff_id is not None and run.outcome is not Outcome.COMPLETED:
            self._pd.holds.end(handoff_id, HoldState.FAILED)

    def _submit_local(self, request: DirectRequest, run: ChoiceRun, context: SubmitContext) -> None:
        if self._pd.args.controls_enabled:
            request = dataclasses.replace(request, local=True)
        run.dp_rank = self._pd.engine.submit(request, context.dp_rank)

    def _submit_source(
        self, request: DirectRequest, run: ChoiceRun, context: SubmitContext, params: Mapping[str, Any]
    ) -> None:
        pd = self._pd
        handoff_id = HandoffId(given_handoff_id(params) or uuid.uuid4().hex)
        pd.holds.add(handoff_id, request.request_id, request.tokens)
        blocks = -(-request.num_prompt_tokens // pd.args.block_size)
        run.kv_transfer_params = source_params(pd.engine_id, handoff_id, self._address(context), blocks)
        self._prefilling[request.request_id] = handoff_id
        record = HandoffRecord(
            handoff_id=handoff_id, request_id=request.request_id, run_by="peer", state="prefilling", source={}
        )
        pd.book.open(record)
        pd.book.note(record, "submitted")
        work = self._run_source(SubmitHandoffPrefill(handoff_id, request), context.dp_rank, record)
        pd.tasks.spawn(work, f"prefill for another server {handoff_id}")

    async def _run_source(
        self, command: SubmitHandoffPrefill, dp_rank: int | None, record: HandoffRecord
    ) -> None:
        pd, request_id = self._pd, command.request.request_id
        hold = pd.holds.find(command.handoff_id)
        try:
            if hold is None:  # the client left before the command was sent
                return
            await pd.engine.command(command, dp_rank)
            if hold.over.is_set():
                pd.engine.cancel_soon(request_id)
            await hold.settled.wait()
        except MockerError as error:
            pd.holds.end(command.handoff_id, HoldState.FAILED)
            pd.dispatcher.fail(request_id, error)
            pd.dispatcher.flush()
        finally:
            self._prefilling.pop(request_id, None)
        if hold is not None:
            await hold.over.wait()
            pd.book.close(record, hold.state)

    def _submit_destination(
        self, request: DirectRequest, run: ChoiceRun, context: SubmitContext, params: Mapping[str, Any]
    ) -> None:
        from app.pd.decode import DecodeHandoff

        handoff = DecodeHandoff(self._pd, request, run, remote_source(params), context.dp_rank)
        self._loading[request.request_id] = handoff
        self._pd.tasks.spawn(
            self._run_destination(handoff, request.request_id), "handoff from another server"
        )

    async def _run_destination(self, handoff: DecodeHandoff, request_id: RequestId) -> None:
        try:
            await handoff.run()
        except Exception as error:
            # Nobody else would tell the client, who waits for its tokens.
            self._pd.dispatcher.fail(request_id, error)
            self._pd.dispatcher.flush()
            raise
        finally:
            self._loading.pop(request_id, None)

    def _check_role(self, role: TransferRole) -> None:
        if self._pd.args.controls_enabled:
            return
        mode = "prefill" if role is TransferRole.SOURCE else "decode"
        raise KvLoadError(
            KvLoadFault.WRONG_ROLE,
            "kv_transfer_params need a prefill or decode worker and this one is aggregated; start the server "
            f"with --disaggregation-mode {mode}.",
        )

    def _address(self, context: SubmitContext) -> Address:
        """Where a decode server finds this one: as configured, else where the request itself found it."""
        settings = self._pd.settings
        configured = settings.kv_transfer_config or {}
        scheme = "https" if settings.ssl_certfile else "http"
        host, port = _host_and_port(context.headers.get(b"host", b"").decode("latin-1"))
        host = str(configured.get("kv_ip") or host or "127.0.0.1")
        return Address(host, _port(configured.get("kv_port")) or port or settings.port or 80, scheme)


def _host_and_port(text: str) -> tuple[str, int | None]:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, ""
    return host.strip("[]"), _port(port)


def _port(value: object) -> int | None:
    text = str(value or "")
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) < 65536 else None
