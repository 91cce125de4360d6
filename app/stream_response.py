"""`HotResponse`: the answer of a hot route, written by the dispatcher without a task switch per token.

Owns one ASGI response: what is pending, the synchronous drive of `send`, a paused transport, a reader that is
too slow, the end. Must not know what the bytes mean, nor the engine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from dataclasses import dataclass
from typing import Any

from app import sse
from app.uvicorn_cycle import Cycle, cycle_of

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Coroutine[Any, Any, None]]
Header = tuple[bytes, bytes]

logger = logging.getLogger("mocker.http")


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """When a reader is too slow: seconds without any progress, or records that wait for it."""

    stall_s: float = 120.0
    pending_records: int = 1_000_000


class WriteQueue:
    """Responses with something to write, in order, and the tasks that wait for sockets.

    `dirty` is one list for good: hot code keeps it.
    """

    __slots__ = ("dirty", "draining", "limits", "open")

    def __init__(self, limits: StreamLimits | None = None) -> None:
        self.dirty: list[HotResponse] = []
        self.draining: set[asyncio.Task[None]] = set()
        self.open: set[HotResponse] = set()
        self.limits = limits or StreamLimits()

    def drain_later(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self.draining.add(task)
        task.add_done_callback(self.draining.discard)

    def ping_silent(self) -> None:
        """A comment to each stream that wrote nothing since the last call but one."""
        for response in tuple(self.open):
            if response.streaming and not response.ended and not response.pending:
                response.silent_looks += 1
                if response.silent_looks >= 2:
                    response.push(sse.PING)
                    response.write()

    async def close(self) -> None:
        """Cancel what waits for sockets that nobody reads."""
        for task in tuple(self.draining):
            task.cancel()
        await asyncio.gather(*self.draining, return_exceptions=True)


class HotResponse:
    """One response. `push` whole records (or `finish` / `respond`), then `write` at the flush.

    Nothing is sent before the first write, so a failure before it has its true status. `on_lost` is
    called once if the reader went away or was too slow. `plan_ms` is the engine time of the oldest
    token that is pending.
    """

    __slots__ = (
        "_blocked",
        "_cycle",
        "_extra_headers",
        "_headers",
        "_owner",
        "_send",
        "_status",
        "ended",
        "lost",
        "on_lost",
        "pending",
        "plan_ms",
        "queue",
        "silent_looks",
        "started",
        "streaming",
    )

    def __init__(self, scope: Scope, send: Send, queue: WriteQueue) -> None:
        edge = scope.get("mocker.edge")
        self._send: Send = send if edge is None else edge.send
        self._extra_headers: Iterable[Header] = () if edge is None else edge.headers
        self.queue = queue
        self._owner: asyncio.Task[Any] | None = None
        self._status = 200
        self._headers: tuple[Header, ...] = sse.HEADERS
        self._blocked = False
        self._cycle: Cycle | None = None
        self.pending: list[bytes] = []
        self.plan_ms: float | None = None
        self.started = False
        self.ended = False
        self.lost = False
        self.on_lost: Callable[[], None] | None = None
        self.streaming = False
        self.silent_looks = 0

    @property
    def begun(self) -> bool:
        """Whether the status is decided: something was sent or is about to be."""
        return self.started or self.ended or bool(self.pending)

    def add_headers(self, headers: Iterable[Header]) -> None:
        """More headers for the answer; without effect once it has begun to go out."""
        self._extra_headers = [*self._extra_headers, *headers]

    def push(self, record: bytes) -> None:
        """Queue one whole record; it goes out at the next flush."""
        if self.ended or self.lost:
            return
        if not self.pending:
            self.queue.dirty.append(self)
        self.pending.append(record)

    def finish(self, record: bytes) -> None:
        """Queue the last record; the response is complete after it."""
        self.push(record)
        self.ended = True

    def respond(self, status: int, headers: Iterable[Header], body: bytes) -> None:
        """A whole answer instead of a stream, written at the next flush. Only before the stream began."""
        if self.begun or self.lost:
            return
        self._status = status
        self._headers = (*headers, (b"content-length", b"%d" % len(body)))
        self.finish(body)

    def cut_off(self) -> None:
        """Break the connection off in mid-answer, after what is pending; a whole answer at its body."""
        if self.lost or (self.ended and not self.pending):
            return
        if not self.begun:
            if not self.streaming:
                self._headers = ((b"content-type", b"application/json"), (b"content-length", b"1"))
            self.pending.append(b"")
        self.ended = False
        self.write()
        self._lose()
        if self._owner is not None:
            self._owner.cancel()

    def write(self) -> None:
        """Send everything pending in one message. While the transport is paused, keep it for later."""
        # Hot: once per stream and flush.
        pending = self.pending
        if (self._blocked or not self.started or self.lost or not pending) and not self._begin():
            return
        body = pending[0] if len(pending) == 1 else b"".join(pending)
        pending.clear()
        self.silent_looks = 0
        cycle = self._cycle
        if cycle is not None and not (self.ended or cycle.disconnected or cycle.flow.write_paused) and body:
            try:
                cycle.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
            except Exception as exc:
                self._failed(exc)
            return
        coroutine = self._send({"type": "http.response.body", "body": body, "more_body": not self.ended})
        try:
            waiting_for = coroutine.send(None)
        except StopIteration:
            return
        except Exception as exc:
            self._failed(exc)
            return
        self._wait_for_socket(coroutine, waiting_for)

    def _begin(self) -> bool:
        """The rarer cases of a write; True if there is a body to send now."""
        pending = self.pending
        if self._blocked or not pending:
            if len(pending) > self.queue.limits.pending_records:
                self._give_up("has too many records waiting")
            return False
        if self.lost:
            pending.clear()
            return False
        self.started = True
        headers = [*self._headers, *self._extra_headers]
        coroutine = self._send({"type": "http.response.start", "status": self._status, "headers": headers})
        try:
            waiting_for = coroutine.send(None)
        except StopIteration:
            self._cycle = cycle_of(self._send)
            return True
        except Exception as exc:
            self._failed(exc)
            return False
        self._wait_for_socket(coroutine, waiting_for)
        return False

    async def wait_closed(self, receive: Receive) -> None:
        """Return once the response is complete or the client is gone (then `on_lost` was called).

        ASGI's receive() says `http.disconnect` in both cases, so one wait serves for both.
        """
        self._owner = asyncio.current_task()
        self.queue.open.add(self)
        try:
            while not self.lost:
                message = await receive()
                if message["type"] == "http.disconnect":
                    break
        except asyncio.CancelledError:
            if not self.lost or self._owner is None:
                raise
            self._owner.uncancel()
        finally:
            self._owner = None
            self.queue.open.discard(self)
            if self._blocked or not (self.ended and not self.pending):
                self._lose()

    def _wait_for_socket(self, coroutine: Coroutine[Any, Any, None], waiting_for: Any) -> None:
        """The transport is paused: a task finishes this send and then goes on with what is pending."""
        self._blocked = True
        self.queue.drain_later(self._drain(_Rest(coroutine, waiting_for)))

    def _failed(self, error: Exception) -> None:
        logger.debug("The client's connection failed: %r", error)
        self._lose()

    async def _drain(self, rest: _Rest) -> None:
        try:
            async with asyncio.timeout(self.queue.limits.stall_s):
                await rest
        except TimeoutError:
            self._give_up(f"did not read for {self.queue.limits.stall_s:g} s")
        except Exception as exc:
            self._failed(exc)
        else:
            self._blocked = False
            self.write()

    def _give_up(self, why: str) -> None:
        if self.lost:
            return
        logger.warning("A stream was ended: its reader %s.", why)
        self._lose()
        if self._owner is not None:
            self._owner.cancel()

    def _lose(self) -> None:
        if self.lost:
            return
        self.lost = True
        self.pending.clear()
        if self.on_lost is not None:
            self.on_lost()


class _Rest:
    """The rest of a coroutine that was started by hand and has yielded one future."""

    __slots__ = ("_coroutine", "_first")

    def __init__(self, coroutine: Coroutine[Any, Any, None], first: Any) -> None:
        self._coroutine = coroutine
        self._first = first

    def __await__(self) -> Generator[Any, Any, None]:
        waiting_for = self._first
        try:
            while True:
                try:
                    result = yield waiting_for
                except BaseException as exc:
                    waiting_for = self._coroutine.throw(exc)
                else:
                    waiting_for = self._coroutine.send(result)
        except StopIteration:
            return
