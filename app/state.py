"""What one running server consists of, built once by the factory and passed down. No globals.

Routes of FastAPI get it as `State` (an Annotated dependency); hot routes hold it directly.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends, Request

from app.dispatch import Dispatcher
from app.openai.answer import Explainer
from app.openai.models import ModelRegistry
from app.openai.submit import RequestObserver, Submitter
from app.settings import ServeSettings
from app.text.chat_template import ChatTemplate
from app.text.generator import OutputPlanner
from app.text.logprobs import LogprobModel
from app.text.token_json import TokenJson
from app.text.tokenizer import Tokenizer
from mocker_core.commands import Applied, CommandEffects, Noop, SchedulerCommand
from mocker_core.engine_args import MockEngineArgs
from mocker_core.live.protocols import LiveCore
from mocker_core.metrics import MockerMetrics
from mocker_core.request import DirectRequest, RequestId

T = TypeVar("T")


class Engine(Protocol):
    """The live engine as docs/architecture.md states it; tests may use a fake."""

    @property
    def args(self) -> MockEngineArgs: ...

    @property
    def state(self) -> Any: ...

    @property
    def dead_reason(self) -> str | None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def submit(self, request: DirectRequest, dp_rank: int | None = None) -> int: ...

    def cancel_soon(self, request_id: RequestId) -> None: ...

    async def cancel(self, request_id: RequestId) -> Applied | Noop: ...

    async def command(self, command: SchedulerCommand, dp_rank: int | None = None) -> CommandEffects: ...

    async def cancel_all(self) -> None: ...

    async def call_core(self, dp_rank: int, act: Callable[[LiveCore, float], T]) -> T: ...

    async def reprice(self, changes: Mapping[str, object]) -> None: ...

    async def pause(self, *, drain: bool = False) -> bool: ...

    def resume(self) -> None: ...

    def metrics(self, dp_rank: int) -> MockerMetrics: ...

    def now_ms(self) -> float: ...

    def rank_stats(self, dp_rank: int) -> Any: ...


@dataclass(slots=True)
class AppState:
    """One server. `load` counts generation requests in flight, as vLLM's /load does."""

    settings: ServeSettings
    engine: Engine
    dispatcher: Dispatcher
    tokenizer: Tokenizer
    template: ChatTemplate
    planner: OutputPlanner
    fragments: TokenJson
    logprobs: LogprobModel
    models: ModelRegistry
    submitter: Submitter
    explainer: Explainer | None = None
    observers: list[RequestObserver] = field(default_factory=list)
    started_at_s: float = field(default_factory=time.time)
    load: int = 0
    shutting_down: bool = False
    extras: dict[str, Any] = field(default_factory=dict)
    # Each ends streams that would go on for ever; called when the server stops, perhaps twice.
    stream_enders: list[Callable[[], None]] = field(default_factory=list)

    def end_streams(self) -> None:
        """Let every endless stream come to its end."""
        for end in self.stream_enders:
            end()

    @property
    def profile(self) -> str:
        return self.settings.wire_profile

    @property
    def max_model_len(self) -> int:
        """Most prompt + output tokens of a request."""
        limit = self.engine.args.max_model_len
        return limit if limit is not None else self.engine.args.num_gpu_blocks * self.engine.args.block_size

    @property
    def max_body_bytes(self) -> int:
        return int(self.settings.max_body_mb * 1e6)


# Dependencies are coroutines, or FastAPI runs them in a thread, which a busy event loop starves of the GIL.
async def get_state(request: Request) -> AppState:
    state: AppState = request.app.state.mocker
    return state


State = Annotated[AppState, Depends(get_state)]
