"""Prefill and decode servers and the router, in threads of a test; and what they must leave behind."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import uvicorn

from app.pd.service import PdService, pd_service
from app.route.backends import RoutePolicy
from app.route.server import RouterSettings, create_router_app
from tests.harness.live_server import LiveServer

PREFILL_PARAMS = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}


def toy_proxy_prefill(url: str, path: str, body: Mapping[str, Any], request_id: str = "r") -> httpx.Response:
    """The first leg as vLLM's own proxy sends it."""
    sent = {**body, "kv_transfer_params": PREFILL_PARAMS, "stream": False, "max_tokens": 1}
    if "max_completion_tokens" in sent:
        sent["max_completion_tokens"] = 1
    sent.pop("stream_options", None)
    sent.pop("min_tokens", None)
    headers = {"X-Request-Id": request_id, "Authorization": "Bearer None"}
    return httpx.post(url + path, json=sent, headers=headers, timeout=30)


def service_of(server: LiveServer) -> PdService:
    return pd_service(server.state)


def active_blocks(server: LiveServer) -> int:
    """Blocks in use or reserved, over all ranks."""
    engine = server.state.engine
    return server.call(
        lambda: sum(engine.metrics(r).active_decode_blocks for r in range(engine.args.dp_size))
    )


def eventually(what: Callable[[], bool], message: str, within_s: float = 20.0) -> None:
    """Wait for something that other threads bring about."""
    end_s = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < end_s, message
        time.sleep(0.005)


def assert_drained(*servers: LiveServer) -> None:
    """Soon no block, hold, listener, task or request is left on any of the servers."""
    for server in servers:
        service, dispatcher = service_of(server), server.state.dispatcher
        eventually(lambda s=server: active_blocks(s) == 0, f"{server.url}: blocks are still active")  # type: ignore[misc]
        eventually(lambda s=service: len(s.holds) == 0, f"{server.url}: a source is still held")  # type: ignore[misc]
        eventually(lambda s=service: len(s.tasks) == 0, f"{server.url}: a handoff still runs")  # type: ignore[misc]
        assert len(service.lifecycle) == 0
        assert len(dispatcher) == 0


class LiveRouter:
    """The router on a free port of the loopback, in a thread."""

    def __init__(
        self, prefill: list[str], decode: list[str], policy: RoutePolicy = RoutePolicy.ROUND_ROBIN
    ) -> None:
        app = create_router_app(RouterSettings(prefill, decode, policy))
        config = uvicorn.Config(
            app, host="127.0.0.1", port=0, log_config=None, access_log=False, timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._started: queue.Queue[int] = queue.Queue()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self.url = ""

    def __enter__(self) -> LiveRouter:
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._started.get(timeout=30)}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive(), "the router did not end"

    async def _serve(self) -> None:
        serving = asyncio.get_running_loop().create_task(self._server.serve())
        while not self._server.started:
            await asyncio.sleep(0.002)
            if serving.done():
                break
        self._started.put(self._server.servers[0].sockets[0].getsockname()[1])
        await serving
