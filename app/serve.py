"""`run(settings)`: one server process, from listening to a clean end.

Owns uvicorn's configuration and the end of open streams at shutdown. Heavy imports happen inside `run`.
"""

from __future__ import annotations

import gc
import logging
import socket
import time
from types import FrameType
from typing import Any

import uvicorn

from app.factory import MockerApp, create_app
from app.settings import ServeSettings
from mocker_core.errors import ArgumentError

logger = logging.getLogger("mocker.serve")

# How long open streams may go on after the signal to stop. Then they end with an error record.
_GRACE_S = 2.0

# How soon a second signal is seen in that time.
_LOOK_S = 0.05


class MockerServer(uvicorn.Server):
    """Ends open answers at shutdown, before uvicorn waits for their connections to close."""

    def __init__(self, config: uvicorn.Config, app: MockerApp, grace_s: float = _GRACE_S) -> None:
        super().__init__(config)
        self._app = app
        self._grace_s = grace_s
        self._hurry = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen; then say in one line what is served and where to look."""
        await super().startup(sockets)
        if self.started and self.servers:
            port = self.servers[0].sockets[0].getsockname()[1]
            logger.info(ready_line(self._app.state.mocker.settings, port))

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal gives open streams their grace time, the second one ends it."""
        if not self.should_exit:
            super().handle_exit(sig, frame)
            return
        self.force_exit = self._hurry
        self._hurry = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new requests at once, let open ones go on for the grace time, then end them."""
        state = self._app.state.mocker
        state.shutting_down = True
        for server in self.servers:
            server.close()
        deadline_s = time.monotonic() + self._grace_s
        while not self._hurry and time.monotonic() < deadline_s:
            if await state.dispatcher.wait_drained(_LOOK_S):
                break
        await state.engine.stop()
        state.dispatcher.flush()
        state.end_streams()
        await super().shutdown(sockets)


def run(settings: ServeSettings) -> int:
    """Serve until a signal comes; the process's exit status. Raises ArgumentError if it can't listen."""
    _check_address(settings)
    app = create_app(settings)
    server = MockerServer(server_config(settings, app), app)
    _calm_garbage_collector()
    server.run()
    return 0 if server.started else 1


def _check_address(settings: ServeSettings) -> None:
    """uvicorn would tell a taken port only after its start-up, and without a remedy."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise ArgumentError(
                f"can't listen on {settings.host} port {settings.port}: {error.strerror}; stop what uses it, "
                "or choose others with --host and --port."
            ) from None


def ready_line(settings: ServeSettings, port: int) -> str:
    """What is served, at which speed, to whom, and the page to look at."""
    args = settings.engine_args()
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host
    scheme = "https" if settings.ssl_certfile else "http"
    keys = f"{len(settings.api_key)} API keys" if settings.api_key else "no API key"
    return (
        f"Serving {', '.join(settings.model_names)}: a simulated {args.engine_type.value} engine "
        f"({args.worker_type.value}, {args.num_gpu_blocks} KV blocks of {args.block_size} tokens, "
        f"speed-up {args.speedup_ratio:g}), with {keys}. Watch it at {scheme}://{host}:{port}/dashboard"
    )


def _calm_garbage_collector() -> None:
    """A full collection over everything imported takes tens of ms, and every stream would wait for it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


def server_config(settings: ServeSettings, app: MockerApp) -> uvicorn.Config:
    """uvicorn's configuration for these settings."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_level=settings.uvicorn_log_level,
        log_config=log_config(settings),
        access_log=not settings.disable_uvicorn_access_log,
        ssl_keyfile=settings.ssl_keyfile,
        ssl_certfile=settings.ssl_certfile,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=5,
        ws="none",
    )


def log_config(settings: ServeSettings) -> dict[str, Any]:
    """Logging of uvicorn and of the mocker, in text or one JSON object a line, to standard error."""
    formatter: dict[str, Any] = {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}
    if settings.log_format == "json":
        formatter = {"()": "app.log_json.JsonFormatter"}
    level = {"trace": "DEBUG"}.get(settings.uvicorn_log_level, settings.uvicorn_log_level.upper())
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": formatter},
        "handlers": {
            "stderr": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}
        },
        "loggers": {
            "uvicorn": {"handlers": ["stderr"], "level": level, "propagate": False},
            "uvicorn.access": {"handlers": ["stderr"], "level": level, "propagate": False},
            "mocker": {"handlers": ["stderr"], "level": level, "propagate": False},
        },
    }
