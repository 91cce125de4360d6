"""--content record and replay: answers of a real server, passed on while they are kept, or given out again.

    RecordEndpoint   asks --upstream, passes each chunk on as it comes, and appends the whole to the file
    ReplayEndpoint   finds a recording by the request and sends its chunks at their recorded times

Both are ASGI apps of one POST route. Must not know the engine: these answers take no part in the simulation.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.content.recording import (
    ChunkClock,
    Recording,
    RecordingError,
    Recordings,
    recording_file,
    request_key,
    request_shown,
)
from app.errors import ApiError, bad_request, from_exception
from app.middleware import Edge, edge_of
from app.openai.answer import send_error
from app.openai.serving import ClientGoneError, read_body
from app.ops.metrics_json import add_section
from app.settings import ServeSettings
from app.state import AppState
from app.stream_response import HotResponse, Receive, Scope, Send
from mocker_core.errors import ArgumentError

if TYPE_CHECKING:
    import httpx

logger = logging.getLogger("mocker.content")

_REPLAY_SPEED = b"x-mocker-replay-speed"
# Of a request: what belongs to this connection, or is written anew. Of an answer: only these are kept.
_NOT_SENT = frozenset({b"host", b"content-length", b"connection", b"accept-encoding", b"transfer-encoding"})
_KEPT_HEADERS = frozenset({"content-type", "retry-after", "retry-after-ms", "x-request-id", "openai-model"})
# Routes that a real server may lack, or that say what this one counts.
_OWN_PATHS = frozenset({"/tokenize", "/detokenize"})


class _Upstream:
    """Base: reads the request, serves it until the client leaves, answers errors."""

    def __init__(self, state: AppState, path: str) -> None:
        self._state = state
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state, edge = self._state, edge_of(scope)
        response = HotResponse(scope, send, state.dispatcher.writes)
        try:
            body = await read_body(edge.incoming, receive, state.max_body_bytes)
            await _until_gone(self._serve(body, edge, send), receive)
        except ClientGoneError:
            return
        except Exception as exc:
            send_error(response, from_exception(exc), state.profile)
            response.write()
            await response.wait_closed(receive)

    async def _serve(self, body: bytes, edge: Edge, send: Send) -> None:
        raise NotImplementedError


class RecordEndpoint(_Upstream):
    """An answer that was cut short, by either side, is not kept."""

    def __init__(self, state: AppState, path: str, client: httpx.AsyncClient, file: Path) -> None:
        super().__init__(state, path)
        self._client = client
        self._file = file

    async def _serve(self, body: bytes, edge: Edge, send: Send) -> None:
        headers = [(name, value) for name, value in edge.incoming.items() if name not in _NOT_SENT]
        headers.append((b"accept-encoding", b"identity"))
        clock = ChunkClock(time.perf_counter())
        import httpx  # slow to import, and this mode is rare

        try:
            request = self._client.build_request("POST", self._path, content=body, headers=headers)
            answer = await self._client.send(request, stream=True)
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        try:
            kept = [(name, value) for name, value in answer.headers.items() if name in _KEPT_HEADERS]
            await _start(send, answer.status_code, kept, edge)
            async for chunk in answer.aiter_raw():
                clock.add(time.perf_counter(), chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except httpx.HTTPError:
            return  # the answer has begun: its end is missing for the client, too
        finally:
            await answer.aclose()
        recording = Recording(
            request_key(self._path, body),
            self._path,
            request_shown(body),
            answer.status_code,
            tuple(kept),
            tuple(clock.chunks),
            time.time(),
        )
        # Before the end goes out: whoever has the whole answer finds it in the file.
        try:
            await asyncio.to_thread(_append, self._file, recording.to_line())
        except OSError as error:
            logger.error("A recording could not be written to %s: %s", self._file, error)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _unreachable(self, error: Exception) -> ApiError:
        return ApiError(
            502,
            f"The server to record, {self._state.settings.upstream}, did not answer: "
            f"{str(error) or type(error).__name__}.",
            code="upstream_error",
            err_type="server_error",
        )


class ReplayEndpoint(_Upstream):
    """Speeds: --speedup-ratio, or X-Mocker-Replay-Speed of a request; 0 sends all at once."""

    def __init__(self, state: AppState, path: str, recordings: Recordings) -> None:
        super().__init__(state, path)
        self._recordings = recordings

    async def _serve(self, body: bytes, edge: Edge, send: Send) -> None:
        speed = _speed(edge.incoming, self._state.settings)
        key = request_key(self._path, body)
        recording = self._recordings.next_for(key)
        if recording is None:
            raise ApiError(
                404,
                f"No recording of this request to {self._path} (its key is {key}); record it with "
                "--content record first.",
                code="no_recording",
            )
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        started = False
        for at_ms, chunk in recording.chunks or ((0.0, b""),):
            wait_s = begun_s + at_ms / 1000 / speed - loop.time() if speed else 0.0
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            if not started:
                await _start(send, recording.status, recording.headers, edge)
                started = True
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def upstream_endpoints(state: AppState, paths: list[str]) -> dict[str, _Upstream]:
    """The endpoints that answer instead of the engine; none in other content modes.

    Raises ArgumentError if the recordings cannot be read."""
    settings = state.settings
    if settings.content not in ("record", "replay"):
        return {}
    file = Path(settings.content_path or "")
    paths = [path for path in paths if path not in _OWN_PATHS]
    if settings.content == "record":
        import httpx

        client = httpx.AsyncClient(
            base_url=(settings.upstream or "").rstrip("/").removesuffix("/v1"), timeout=600.0
        )
        state.extras["upstream_client"] = client
        target = recording_file(file)
        return {path: RecordEndpoint(state, path, client, target) for path in paths}
    try:
        recordings = Recordings.load(file)
    except RecordingError as error:
        raise ArgumentError(str(error)) from None
    add_section(state, "content", lambda _: {"path": str(file), "entries": len(recordings)})
    return {path: ReplayEndpoint(state, path, recordings) for path in paths}


async def close_upstream(state: AppState) -> None:
    """At the server's end."""
    client: httpx.AsyncClient | None = state.extras.get("upstream_client")
    if client is not None:
        await client.aclose()


async def _until_gone(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Run `work`, but not longer than the client stays."""
    serving = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            serving.result()
    finally:
        for task in (serving, leaving):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _start(send: Send, status: int, headers: Any, edge: Edge) -> None:
    mine = {name for name, _ in edge.headers}
    raw = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers]
    shown = [(name, value) for name, value in raw if name not in mine]
    await send({"type": "http.response.start", "status": status, "headers": [*shown, *edge.headers]})


def _append(file: Path, line: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as out:
        out.write(line)  # one write of one line: recordings of several requests never mix


def _speed(headers: Mapping[bytes, bytes], settings: ServeSettings) -> float:
    text = headers.get(_REPLAY_SPEED)
    if text is None:
        return settings.speedup_ratio or 1.0
    try:
        speed = float(text)
    except ValueError:
        speed = -1.0
    if not 0 <= speed <= 1e9:
        shown = text.decode("latin-1")
        raise bad_request(f"X-Mocker-Replay-Speed is {shown!r:.60}; it must be a number from 0 to 1e9.")
    return speed
