"""An engine that only does what a test tells it: notes what is submitted and cancelled, delivers by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from types import SimpleNamespace
from typing import Any

from app.dispatch import Dispatcher
from mocker_core.commands import Applied, CommandEffects, Noop, SchedulerCommand
from mocker_core.engine_args import MockEngineArgs
from mocker_core.errors import DuplicateIdError
from mocker_core.events import AdmissionEvent, OutputSignal
from mocker_core.metrics import MockerMetrics
from mocker_core.request import DirectRequest, RequestId
from mocker_core.sched.output import EnginePassResult


class State(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DEAD = "dead"


class ScriptedEngine:
    """Give it to `create_app(settings, engine=engine.bind)`. Times are whatever the test says."""

    def __init__(self) -> None:
        self.submitted: list[DirectRequest] = []
        self.cancelled: list[str] = []
        self.state = State.READY
        self.dead_reason: str | None = None
        self.time_ms = 0.0
        self.running = 0
        self.waiting = 0
        self.refuse_after: int | None = None
        self._more = asyncio.Event()
        self.args: MockEngineArgs
        self.dispatcher: Dispatcher

    def bind(self, args: MockEngineArgs, dispatcher: Dispatcher) -> ScriptedEngine:
        self.args, self.dispatcher = args, dispatcher
        return self

    async def start(self) -> None: ...

    async def stop(self) -> None:
        self.dispatcher.on_dead(0, self.dispatcher.live_ids(), "The engine was stopped.")

    def submit(self, request: DirectRequest, dp_rank: int | None = None) -> int:
        if self.refuse_after is not None and len(self.submitted) >= self.refuse_after:
            raise DuplicateIdError("That id is taken.")
        self.submitted.append(request)
        self._more.set()
        return dp_rank or 0

    async def wait_submitted(self, count: int) -> None:
        while len(self.submitted) < count:
            self._more.clear()
            await self._more.wait()

    def cancel_soon(self, request_id: RequestId) -> None:
        self.cancelled.append(request_id)

    async def cancel(self, request_id: RequestId) -> Applied | Noop:
        return Noop()

    async def command(self, command: SchedulerCommand, dp_rank: int | None = None) -> CommandEffects:
        return CommandEffects(Noop())

    def metrics(self, dp_rank: int) -> MockerMetrics:
        return MockerMetrics(dp_rank, 0, self.args.num_gpu_blocks, 0.0, self.running, self.waiting, 0)

    def now_ms(self) -> float:
        return self.time_ms

    def rank_stats(self, dp_rank: int) -> Any:
        return SimpleNamespace()

    def admit(self, *request_ids: str, reused: int = 0) -> None:
        """One pass start that admits these requests."""
        admissions = [AdmissionEvent(RequestId(name), reused) for name in request_ids]
        self.dispatcher.on_pass_start(0, self._pass([], admissions))

    def emit(self, *outputs: OutputSignal, flush: bool = True) -> list[RequestId]:
        """One pass end with these signals; the ids that are gone."""
        result = self._pass(list(outputs), [])
        gone = list(self.dispatcher.on_outputs(0, result, result.tokens, result.ends))
        if flush:
            self.dispatcher.flush()
        return gone

    def next_token(self, request: DirectRequest, position: int, **more: Any) -> OutputSignal:
        """The signal of the planned token at `position`; the last one completes the request."""
        plan = request.output_token_ids
        assert plan is not None
        return OutputSignal(request.request_id, plan[position], position == len(plan) - 1, **more)

    def _pass(self, outputs: list[OutputSignal], admissions: list[AdmissionEvent]) -> EnginePassResult:
        result = EnginePassResult(self.time_ms, self.time_ms, admissions, self.metrics(0), True)
        add_outputs(result, outputs)
        return result


def add_outputs(result: EnginePassResult, outputs: Sequence[OutputSignal]) -> None:
    """Put signals into a pass as the engine does it."""
    for signal in outputs:
        if signal.completed:
            result.add_end(signal)
        else:
            assert signal.token_id is not None
            result.tokens.append((signal.request_id, signal.token_id))
