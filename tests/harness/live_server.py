"""A real server on a free port of the loopback, in a thread of this process or as a process of its own."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, TypeVar

import httpx

from app.factory import create_app
from app.serve import MockerServer, server_config
from app.settings import ServeSettings
from app.state import AppState

T = TypeVar("T")


class LiveServer:
    """`with LiveServer(speedup_ratio=1000.0) as server: ... server.url`. Keywords are ServeSettings'."""

    def __init__(self, *, grace_s: float = 0.2, **settings: Any) -> None:
        self._settings = ServeSettings(
            **{"host": "127.0.0.1", "port": 0, "uvicorn_log_level": "warning", **settings}
        )
        self._grace_s = grace_s
        self._ready: queue.Queue[BaseException | None] = queue.Queue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.url = ""
        self.port = 0
        self.state: AppState
        self._server: MockerServer
        self._loop: asyncio.AbstractEventLoop

    def __enter__(self) -> LiveServer:
        self._thread.start()
        problem = self._ready.get(timeout=30)
        if problem is not None:
            raise problem
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the server as a signal would, and wait for it."""
        self._server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive(), "the server did not end"

    def begin_stop(self) -> None:
        """As a signal: returns at once."""
        self._server.should_exit = True

    def signal_again(self) -> None:
        """As one more signal while it ends."""
        self._server.handle_exit(signal.SIGINT, None)

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the server's event loop."""

        async def run() -> T:
            return function()

        return self.run(run)

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine function on the server's event loop."""

        async def start() -> T:
            return await function()

        return asyncio.run_coroutine_threadsafe(start(), self._loop).result(30)

    def _run(self) -> None:
        try:
            app = create_app(self._settings)
            config = server_config(self._settings, app)
            config.log_config = None
            self._server = MockerServer(config, app, self._grace_s)
            self.state = app.state.mocker
            with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as exc:
            self._ready.put(exc)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        serving = self._loop.create_task(self._server.serve())
        while not self._server.started:
            await asyncio.sleep(0.002)
            if serving.done():
                break
        if self._server.started:
            self.port = self._server.servers[0].sockets[0].getsockname()[1]
            self.url = f"http://127.0.0.1:{self.port}"
            self._ready.put(None)
        await serving


class ServerProcess:
    """`mocker serve` as a process of its own, on a free port. `started_s`: seconds to a 200 on /health."""

    def __init__(self, flags: Sequence[str] = (), *, wait_s: float = 60.0) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [
            sys.executable,
            "-m",
            "app.cli",
            "serve",
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
        ]
        self._command += flags
        self._wait_s = wait_s
        self.started_s = 0.0
        self.process: subprocess.Popen[bytes]

    def __enter__(self) -> ServerProcess:
        began_s = time.monotonic()
        self.process = subprocess.Popen(self._command, env=os.environ.copy())
        try:
            while not self._healthy():
                assert self.process.poll() is None, "the server ended at its start"
                assert time.monotonic() - began_s < self._wait_s, "the server did not get ready"
                time.sleep(0.005)
        except BaseException:
            self.stop()
            raise
        self.started_s = time.monotonic() - began_s
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> int:
        """Terminate it as a service manager does; its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()

    def _healthy(self) -> bool:
        try:
            return httpx.get(f"{self.url}/health", timeout=5.0).status_code == 200
        except httpx.TransportError:
            return False
