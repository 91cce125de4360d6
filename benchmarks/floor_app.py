"""The plain-ASGI floor: what uvicorn with uvloop and httptools can do on one core, with no work behind it.

Owns a bare ASGI app that sends prepared chunks: one send per chunk, per loop turn and per stream, driven by
a callback; or, with --step-ms, one per step on absolute deadlines. Unstreamed, one prepared body.
Must not parse requests, nor use anything of ours but the precise timer.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import uvicorn

from benchmarks.lateness_map import LatenessMap
from mocker_core.live.precise_wait import Timer, precise_timer

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Coroutine[Any, Any, None]]

_HEAD = b'data: {"id":"chatcmpl-0123456789abcdef0123456789abcdef","object":"chat.completion.chunk",'
_HEAD += b'"created":1700000000,"model":"mocker","choices":[{"index":0,'
_PLAIN = _HEAD + b'"delta":{"content":" amet"},"logprobs":null,"finish_reason":null}]}\n\n'
_ROLE = _HEAD + b'"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n'
_LAST = (
    _HEAD + b'"delta":{"content":" amet"},"logprobs":null,"finish_reason":"length","stop_reason":null}]}\n\n'
)
DEFAULT_STREAM = _ROLE + _PLAIN * 127 + _LAST + b"data: [DONE]\n\n"
DEFAULT_BODY = b'{"choices":[{"message":{"content":"' + b" lorem ipsum dolor" * 16 + b'"}}]}'

_STREAM_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store")],
}
# Streams written between two looks at the clock, as our server does it.
_WRITES_PER_CLOCK_READ = 8


def chunks_of(stream: bytes) -> list[bytes]:
    """A recorded stream as its sends: the role goes with the first token, [DONE] with the last."""
    records = [record + b"\n\n" for record in stream.split(b"\n\n") if record]
    return [records[0] + records[1], *records[2:-2], records[-2] + records[-1]]


class FloorStream:
    """One response: where it is in its chunks, and the send that waits for a full socket, if one does."""

    __slots__ = ("blocked", "gone", "position", "send")

    def __init__(self, send: Send) -> None:
        self.send = send
        self.position = 0
        self.gone = False
        self.blocked: asyncio.Task[None] | None = None

    def write(self, chunk: bytes, more: bool) -> None:
        """Drive send() by hand: it ends at once unless the transport is paused."""
        coroutine = self.send({"type": "http.response.body", "body": chunk, "more_body": more})
        try:
            waiting_for = coroutine.send(None)
        except StopIteration:
            return
        self.blocked = asyncio.get_running_loop().create_task(self._finish(coroutine, waiting_for))

    async def _finish(self, coroutine: Coroutine[Any, Any, None], waiting_for: asyncio.Future[Any]) -> None:
        while True:
            await waiting_for
            try:
                waiting_for = coroutine.send(None)
            except StopIteration:
                self.blocked = None
                return


class Stepper:
    """Gives each open stream one chunk per step. A step is a turn of the loop, or `step_ms` on the clock."""

    def __init__(self, chunks: list[bytes], step_ms: float, lateness: LatenessMap | None) -> None:
        self._chunks = chunks
        self._step_ms = step_ms
        self._lateness = lateness
        self._streams: list[FloorStream] = []
        self._start_s = time.monotonic()
        self._deadline_ms = 0.0
        self._timer: Timer | None = None

    def add(self, stream: FloorStream) -> None:
        self._streams.append(stream)
        if len(self._streams) == 1:
            self._deadline_ms = self.now_ms()
            self._next()

    def now_ms(self) -> float:
        return (time.monotonic() - self._start_s) * 1000.0

    def _next(self) -> None:
        if not self._step_ms:
            asyncio.get_running_loop().call_soon(self._turn)
            return
        if self._timer is None:
            self._timer = precise_timer(self.now_ms, self._paced_step)
        self._deadline_ms += self._step_ms
        self._timer.arm(self._deadline_ms)

    def _turn(self) -> None:
        chunks, end = self._chunks, len(self._chunks) - 1
        for stream in self._streams:
            if stream.blocked is not None:
                continue
            if stream.position < end:
                stream.write(chunks[stream.position], True)
                stream.position += 1
            else:
                stream.write(chunks[end], False)
                stream.gone = True
        self._streams = [stream for stream in self._streams if not stream.gone]
        if self._streams:
            self._next()

    def _paced_step(self) -> None:
        """Endless streams: the chunks with one event go round."""
        chunks, lateness, plan_ms = self._chunks[1:-1], self._lateness, self._deadline_ms
        size = len(chunks)
        self._streams = [stream for stream in self._streams if not stream.gone]
        late_ms = 0.0
        for index, stream in enumerate(self._streams):
            if stream.blocked is not None:
                continue
            stream.write(chunks[stream.position], True)
            stream.position = (stream.position + 1) % size
            if lateness is not None:
                if index % _WRITES_PER_CLOCK_READ == 0:
                    late_ms = self.now_ms() - plan_ms
                lateness.observe(late_ms)
        if self._streams:
            self._next()


class FloorApp:
    """POST anything: a stream if the body asks for one, else the prepared body. GET: an empty 200."""

    def __init__(self, stream: bytes, body: bytes, step_ms: float, lateness: LatenessMap | None) -> None:
        self._stepper = Stepper(chunks_of(stream), step_ms, lateness)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        self._start = {"type": "http.response.start", "status": 200, "headers": headers}
        self._body = {"type": "http.response.body", "body": body, "more_body": False}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body = b""
        while scope["method"] == "POST":
            message = await receive()
            body += message["body"]
            if not message["more_body"]:
                break
        if b'"stream":true' not in body:
            await send(self._start)
            await send(self._body)
            return
        await send(_STREAM_START)
        stream = FloorStream(send)
        self._stepper.add(stream)
        while (await receive())["type"] != "http.disconnect":
            pass
        stream.gone = True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--step-ms", type=float, default=0.0)
    parser.add_argument(
        "--stream-file", type=Path, help="bytes of a stream to send, as recorded from our server"
    )
    parser.add_argument("--body-file", type=Path, help="bytes of an unstreamed answer to send")
    parser.add_argument("--lateness-file", type=Path)
    options = parser.parse_args()
    stream = options.stream_file.read_bytes() if options.stream_file else DEFAULT_STREAM
    body = options.body_file.read_bytes() if options.body_file else DEFAULT_BODY
    lateness = LatenessMap(options.lateness_file) if options.lateness_file else None
    app = FloorApp(stream, body, options.step_ms, lateness)
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=options.port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
