"""A server in this process whose engine runs far faster than time, for tests of what answers say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from app.factory import MockerApp, create_app
from app.settings import ServeSettings
from app.state import AppState
from mocker_core.metrics import MockerMetrics
from tests.harness.asgi_stream import AsgiClient, serving
from tests.harness.scripted_engine import ScriptedEngine

T = TypeVar("T")

FAST = 1e6


def make_app(**settings: Any) -> MockerApp:
    """An application at high speed; keywords are ServeSettings'."""
    return create_app(ServeSettings(**{"speedup_ratio": FAST, "block_size": 16, **settings}))


def served(test: Callable[[AsgiClient, AppState], Awaitable[T]], **settings: Any) -> T:
    """Run a test against a server of its own; afterwards no request and no block may be left."""

    async def main() -> T:
        app = make_app(**settings)
        state: AppState = app.state.mocker
        async with serving(app) as client:
            result = await test(client, state)
            await settle(state)
            assert len(state.dispatcher) == 0
            assert state.load == 0
            assert not any(map(_is_busy, _metrics(state)))
        return result

    return asyncio.run(main())


async def settle(state: AppState) -> None:
    """Let the engine's loops reach their next boundary."""
    async with asyncio.timeout(20):
        while any(map(_is_busy, _metrics(state))):  # noqa: ASYNC110 # no event
            await asyncio.sleep(0.001)


def _metrics(state: AppState) -> list[MockerMetrics]:
    return [state.engine.metrics(rank) for rank in range(state.engine.args.dp_size)]


def _is_busy(metrics: MockerMetrics) -> bool:
    return bool(metrics.active_decode_blocks or metrics.running_requests or metrics.waiting_requests)


def chat(content: str = "Hello there", **more: Any) -> dict[str, Any]:
    """A chat body of one user message."""
    return {"messages": [{"role": "user", "content": content}], **more}


ScriptedTest = Callable[[AsgiClient, ScriptedEngine, AppState], Awaitable[None]]


def scripted(test: ScriptedTest, **settings: Any) -> None:
    """Run a test against a server whose engine only does what the test says; no request may be left."""

    async def main() -> None:
        engine = ScriptedEngine()
        app = create_app(ServeSettings(**settings), engine=engine.bind)  # type: ignore[arg-type]
        async with serving(app) as client:
            await test(client, engine, app.state.mocker)
            assert len(app.state.mocker.dispatcher) == 0
            assert app.state.mocker.load == 0

    asyncio.run(main())
