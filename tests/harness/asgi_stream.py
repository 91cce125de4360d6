"""An in-process ASGI client that sees each send as it happens, can stop reading, and can hang up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any


class Exchange:
    """One request and what came back so far. `bodies`: the body of each send, in order."""

    def __init__(self, app: Any, scope: dict[str, Any], body: bytes) -> None:
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.bodies: list[bytes] = []
        self.complete = False
        self._requests = [{"type": "http.request", "body": body, "more_body": False}]
        self._readable = asyncio.Event()
        self._readable.set()
        self._changed = asyncio.Event()
        self._sent = asyncio.Event()
        self._hung_up = False
        self._task = asyncio.get_running_loop().create_task(app(scope, self._receive, self._send))

    @property
    def body(self) -> bytes:
        return b"".join(self.bodies)

    def json(self) -> Any:
        return json.loads(self.body)

    def records(self) -> list[Any]:
        """The `data:` records so far; `[DONE]` stays a text. Comments are left out."""
        return parse_records(self.body)

    def text(self, index: int = 0) -> str:
        """The streamed text of one choice, chat or completion."""
        return stream_text(self.records(), index)

    def pause(self) -> None:
        """Stop reading: the next send does not return until `resume`."""
        self._readable.clear()

    def resume(self) -> None:
        self._readable.set()

    def hang_up(self) -> None:
        """The client goes away."""
        self._hung_up = True
        self._readable.set()
        self._changed.set()

    async def finished(self) -> Exchange:
        """Wait until the application has returned."""
        async with asyncio.timeout(30):
            await self._task
        return self

    async def wait_for_bodies(self, count: int) -> None:
        """Wait until `count` sends with a body came."""
        async with asyncio.timeout(30):
            while len(self.bodies) < count and not self.complete:
                self._sent.clear()
                await self._sent.wait()

    async def _receive(self) -> dict[str, Any]:
        if self._requests:
            return self._requests.pop(0)
        while not (self._hung_up or self.complete):
            await self._changed.wait()
            self._changed.clear()
        return {"type": "http.disconnect"}

    async def _send(self, message: Mapping[str, Any]) -> None:
        if not self._readable.is_set():
            await self._readable.wait()
        if self._hung_up:
            return
        if message["type"] == "http.response.start":
            assert self.status is None, "the response was started twice"
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        assert self.status is not None, "a body came before the start"
        assert not self.complete, "a body came after the end"
        if message.get("body"):
            self.bodies.append(bytes(message["body"]))
        self._sent.set()
        if not message.get("more_body", False):
            self.complete = True
            self._changed.set()


class AsgiClient:
    """Sends requests to one application on the running loop."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def open(
        self,
        method: str,
        path: str,
        body: bytes | dict[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Exchange:
        """Start a request; it goes on by itself."""
        raw = json.dumps(body).encode() if isinstance(body, dict) else body or b""
        shown = {"host": "test", "content-length": str(len(raw)), "content-type": "application/json"}
        shown |= {name.lower(): value for name, value in (headers or {}).items()}
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in shown.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
            "state": {},
        }
        return Exchange(self.app, scope, raw)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | dict[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Exchange:
        """A whole request and its answer."""
        return await self.open(method, path, body, headers).finished()

    async def post(
        self, path: str, body: bytes | dict[str, Any], headers: Mapping[str, str] | None = None
    ) -> Exchange:
        return await self.request("POST", path, body, headers)

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Exchange:
        return await self.request("GET", path, None, headers)


@asynccontextmanager
async def serving(app: Any) -> AsyncIterator[AsgiClient]:
    """A client of `app` while its lifespan runs."""
    async with app.router.lifespan_context(app):
        yield AsgiClient(app)


def parse_records(stream: bytes) -> list[Any]:
    """The `data:` records of a stream, whose framing is checked on the way."""
    assert b"\r" not in stream, "line ends must be LF"
    assert stream == b"" or stream.endswith(b"\n\n"), "the last record is cut"
    records: list[Any] = []
    for record in stream.split(b"\n\n")[:-1]:
        if record.startswith(b":"):
            continue
        assert record.startswith(b"data: ") and b"\n" not in record, record
        payload = record.removeprefix(b"data: ")
        records.append("[DONE]" if payload == b"[DONE]" else json.loads(payload))
    return records


def stream_text(records: list[Any], index: int = 0) -> str:
    """The text of one choice of a stream."""
    pieces = [
        choice["text"] if "text" in choice else choice["delta"].get("content") or ""
        for record in records
        if isinstance(record, dict)
        for choice in record.get("choices", [])
        if choice["index"] == index
    ]
    return "".join(pieces)
