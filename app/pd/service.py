"""Everything of one server that concerns handoffs: holds, leases, records, counters; built once, passed down.

`install_handoffs` puts it into a server's state: its submitter replaces the direct one. Must not know routes;
they get it as `Pd`.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Depends

from app.dispatch import Dispatcher, EngineObserver
from app.errors import ApiError
from app.pd.book import HandoffBook
from app.pd.holds import HoldRegistry, HoldState
from app.pd.lifecycle import LifecycleHub
from app.pd.params import KvLoadFault
from app.pd.submitter import PdSubmitter
from app.pd.tasks import TaskSet
from app.state import AppState, Engine, State
from mocker_core.commands import Applied, CancelSource, ReleaseSource
from mocker_core.engine_args import MockEngineArgs
from mocker_core.events import SchedulerLifecycleEvent
from mocker_core.handoff.coordinator import HandoffOutcome
from mocker_core.request import HandoffId, RequestId

if TYPE_CHECKING:
    import httpx

    from app.settings import ServeSettings

STATE_KEY = "pd"


@dataclass(slots=True)
class PdCounters:
    """Counts since the start. `loads`: handoffs that this server took in as a destination, by outcome."""

    loads: Counter[HandoffOutcome] = field(default_factory=Counter)
    load_failures: Counter[KvLoadFault] = field(default_factory=Counter)
    recomputed: int = 0
    transferred_tokens: int = 0


class PdService(EngineObserver):
    """One server's part in handoffs."""

    def __init__(self, settings: ServeSettings, engine: Engine, dispatcher: Dispatcher) -> None:
        self.settings = settings
        self.engine = engine
        self.dispatcher = dispatcher
        self.engine_id = str(uuid.uuid4())
        self.holds = HoldRegistry(self.engine_id)
        self.lifecycle = LifecycleHub()
        self.book = HandoffBook(engine.now_ms)
        self.counters = PdCounters()
        self.tasks = TaskSet()
        self.submitter = PdSubmitter(self)
        self._client: httpx.AsyncClient | None = None
        if engine.args.controls_enabled:  # else there is nothing to watch
            dispatcher.add_observer(self)

    def on_lifecycle(self, dp_rank: int, event: SchedulerLifecycleEvent) -> None:
        for part in (self.holds, self.book, self.lifecycle):
            part.on_lifecycle(dp_rank, event)

    def on_dead(self, dp_rank: int, request_ids: Sequence[RequestId], reason: str) -> None:
        self.holds.end_all(HoldState.FAILED)

    @property
    def args(self) -> MockEngineArgs:
        return self.engine.args

    @property
    def client(self) -> httpx.AsyncClient:
        """For talking to peers. Made, and its library imported, only where it is needed."""
        if self._client is None:
            from app.pd.peer import peer_http_client

            self._client = peer_http_client()
        return self._client

    async def end_hold(self, handoff_id: str, state: HoldState) -> Literal["applied", "noop"]:
        """Release or cancel a source that the registry knows; whoever waits for its tokens gets an error."""
        hold = self.holds.find(handoff_id)
        if hold is None:
            return "noop"
        self.holds.end(handoff_id, state)
        if (record := self.book.find_open(handoff_id)) is not None:
            self.book.close(record, str(state))
        command = ReleaseSource if state is HoldState.RELEASED else CancelSource
        effects = await self.engine.command(command(HandoffId(handoff_id)))
        gone = ApiError(410, "The handoff of this prefill was cancelled.", code="cancelled")
        self.dispatcher.fail(hold.request_id, gone)
        self.dispatcher.flush()
        return "applied" if isinstance(effects.result, Applied) else "noop"

    async def cancel_request(self, request_id: str) -> Literal["applied", "noop"]:
        """End a request wherever it is: loading, waiting, running or held. Its client gets an error."""
        key = RequestId(request_id)
        loading = self.submitter.cancel_loading(request_id)
        effect = await self.engine.cancel(key)
        hold = self.holds.find_request(key)
        if hold is not None:
            self.holds.end(hold.handoff_id, HoldState.CANCELLED)
        if not loading and not isinstance(effect, Applied):
            return "noop"
        record = self.book.find_request(key)
        if record is not None and record.run_by != "coordinator":
            self.book.close(record, "cancelled")
        self.dispatcher.fail(key, ApiError(410, f"The request {request_id} was cancelled.", code="cancelled"))
        self.dispatcher.flush()
        return "applied"

    def snapshot(self) -> dict[str, Any]:
        """The figures of /admin/metrics."""
        counters = self.counters
        kv_bytes = self.args.kv_bytes_per_token or 0
        return {
            "engine_id": self.engine_id,
            "running": len(self.tasks),
            "held_sources": self.holds.held,
            "sources_ended": {str(state): count for state, count in self.holds.ended_total.items()},
            "handoffs": {str(outcome): counters.loads[outcome] for outcome in HandoffOutcome},
            "kv_load_failures": {str(fault): count for fault, count in counters.load_failures.items()},
            "kv_load_recomputed": counters.recomputed,
            "transferred_tokens": counters.transferred_tokens,
            "transferred_bytes": counters.transferred_tokens * kv_bytes,
        }

    async def close(self) -> None:
        """End what still runs. Leases end with their connections, so peers free what they hold for us."""
        await self.tasks.close()
        if self._client is not None:
            await self._client.aclose()


def pd_service(state: AppState) -> PdService:
    service: PdService = state.extras[STATE_KEY]
    return service


async def _pd_of_request(state: State) -> PdService:
    return pd_service(state)


Pd = Annotated[PdService, Depends(_pd_of_request)]


def install_handoffs(state: AppState) -> PdService:
    """Give a server its part in handoffs; call `close` on it when the server ends."""
    from app.ops.metrics_json import add_section

    service = PdService(state.settings, state.engine, state.dispatcher)
    state.extras[STATE_KEY] = service
    submitter = service.submitter
    state.submitter = submitter
    if state.engine.args.controls_enabled:
        state.observers.append(submitter)
        _ = service.client  # else the first handoff would wait for it

    def end_now() -> None:
        service.holds.end_all(HoldState.FAILED)
        submitter.fail_all()

    state.stream_enders.append(end_now)
    add_section(state, "handoffs", lambda _: service.snapshot())
    return service
