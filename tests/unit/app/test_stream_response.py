from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from app.stream_response import HotResponse, StreamLimits, WriteQueue


class Wire:
    """ASGI's two ends: what was sent, a reader that can stop, a client that can leave."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.readable = asyncio.Event()
        self.readable.set()
        self.left = asyncio.Event()
        self.error: Exception | None = None

    async def send(self, message: dict[str, Any]) -> None:
        if self.error is not None:
            raise self.error
        if not self.readable.is_set():
            await self.readable.wait()
        self.sent.append(message)
        if message["type"] == "http.response.body" and not message["more_body"]:
            self.left.set()

    async def receive(self) -> dict[str, Any]:
        await self.left.wait()
        return {"type": "http.disconnect"}

    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent if message["type"] == "http.response.body"]


def run(test: Callable[[Wire, WriteQueue, HotResponse], Any], limits: StreamLimits | None = None) -> None:
    async def main() -> None:
        wire, queue = Wire(), WriteQueue(limits)
        await test(wire, queue, HotResponse({}, wire.send, queue))
        await queue.close()

    asyncio.run(main())


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_nothing_is_sent_before_the_first_write() -> None:
    async def test(wire: Wire, queue: WriteQueue, response: HotResponse) -> None:
        response.push(b"a")
        assert wire.sent == []
        assert queue.dirty == [response]

    run(test)


def test_records_pending_at_a_write_go_out_in_one_send() -> None:
    async def test(wire: Wire, queue: WriteQueue, response: HotResponse) -> None:
        response.push(b"a")
        response.push(b"b")
        response.write()
        response.finish(b"c")
        response.write()
        assert [message["type"] for message in wire.sent] == [
            "http.response.start",
            *["http.response.body"] * 2,
        ]
        assert wire.bodies() == [b"ab", b"c"]
        assert [message["more_body"] for message in wire.sent[1:]] == [True, False]

    run(test)


def test_records_after_the_end_are_ignored() -> None:
    async def test(wire: Wire, queue: WriteQueue, response: HotResponse) -> None:
        response.finish(b"end")
        response.push(b"late")
        response.write()
        response.write()
        assert wire.bodies() == [b"end"]

    run(test)


def test_a_paused_reader_gets_every_record_in_order_after_it_resumes() -> None:
    async def test(wire: Wire, queue: WriteQueue, response: HotResponse) -> None:
        response.push(b"0")
        response.write()
        wire.readable.clear()
        for number in range(1, 50):
            response.push(b"%d" % number)
            response.write()
            await asyncio.sleep(0)
        assert wire.bodies() == [b"0"]
        response.finish(b"end")
        response.write()
        wire.readable.set()
        await turns()
        assert b"".join(wire.bodies()) == b"".join(b"%d" % number for number in range(50)) + b"end"
        assert not response.lost

    run(test)


def test_a_reader_paused_before_the_start_gets_the_start_first() -> None:
    async def test(wire: Wire, queue: WriteQueue, response: HotResponse) -> None:
        wire.readable.clear()
        response.finish(b"all")
        response.write()
        wire.readable.set()
        await turns()
        assert [message["type"] for message in wire.sent] == ["http.response.start", "http.response.body"]

    run(test)


def test_a_reader_without_progress_for_the_limit_is_given_up() -> None:
    async def test(wire: Wire, queue: WriteQueue, response: HotResponse) -> None:
        lost: list[bool] = []
        response.on_lost = lambda: lost.append(True)
        waiting = asyncio.ensure_future(response.wait_closed(wire.receive))
        await turns(2)
        wire.readable.clear()
        response.push(b"a")
        response.write()
        await asyncio.wait_for(waiting, 5)
        assert lost == [True]
        assert response.lost

    run(test, StreamLimits(stall_s=0.0))


def test_a_reader_with_too_many_records_waiting_is_given_up() -> None:
    async def test(wire: Wire, queue: WriteQueue, response: HotResponse) -> None:
        wire.readable.clear()
        for _ in range(10):
            response.push(b"a")
            response.write()
        assert response.lost
        assert response.pending == []

    run(test, StreamLimits(pending_records=4))


def test_a_client_that_leaves_is_noticed_once() -> None:
    async def test(wire: Wire, queue: WriteQueue, response: HotResponse) -> None:
        lost: list[bool] = []
        response.on_lost = lambda: lost.append(True)
        response.push(b"a")
        response.write()
        wire.left.set()
        await response.wait_closed(wire.receive)
        response.push(b"late")
        response.write()
        assert lost == [True]
        assert wire.bodies() == [b"a"]

    run(test)


def test_a_complete_answer_is_not_lost() -> None:
    async def test(wire: Wire, queue: WriteQueue, response: HotResponse) -> None:
        response.on_lost = lambda: (_ for _ in ()).throw(AssertionError)
        response.finish(b"all")
        response.write()
        await response.wait_closed(wire.receive)
        assert not response.lost

    run(test)


def test_a_send_that_fails_loses_the_client() -> None:
    async def test(wire: Wire, queue: WriteQueue, response: HotResponse) -> None:
        lost: list[bool] = []
        response.on_lost = lambda: lost.append(True)
        wire.error = OSError("broken pipe")
        response.push(b"a")
        response.write()
        assert lost == [True]

    run(test)


def test_a_cancelled_wait_loses_the_client_and_goes_on_as_cancelled() -> None:
    async def test(wire: Wire, queue: WriteQueue, response: HotResponse) -> None:
        waiting = asyncio.ensure_future(response.wait_closed(wire.receive))
        await turns(2)
        waiting.cancel()
        (result,) = await asyncio.gather(waiting, return_exceptions=True)
        assert isinstance(result, asyncio.CancelledError)
        assert response.lost

    run(test)


def test_a_whole_answer_has_its_status_and_length() -> None:
    async def test(wire: Wire, queue: WriteQueue, response: HotResponse) -> None:
        response.respond(418, [(b"content-type", b"application/json")], b"{}")
        response.write()
        assert wire.sent[0]["status"] == 418
        assert (b"content-length", b"2") in wire.sent[0]["headers"]
        assert wire.bodies() == [b"{}"]

    run(test)


def test_a_stream_that_began_cannot_become_a_whole_answer() -> None:
    async def test(wire: Wire, queue: WriteQueue, response: HotResponse) -> None:
        response.push(b"a")
        response.respond(500, [], b"no")
        response.write()
        assert wire.sent[0]["status"] == 200
        assert wire.bodies() == [b"a"]

    run(test)


def test_a_comment_goes_only_to_silent_open_streams() -> None:
    async def test(wire: Wire, queue: WriteQueue, response: HotResponse) -> None:
        response.streaming = True
        waiting = asyncio.ensure_future(response.wait_closed(wire.receive))
        await turns(2)
        queue.ping_silent()
        response.push(b"data: 1\n\n")
        response.write()
        queue.ping_silent()
        assert wire.bodies() == [b"data: 1\n\n"]
        queue.ping_silent()
        assert wire.bodies() == [b"data: 1\n\n", b": ping\n\n"]
        response.finish(b"end")
        response.write()
        queue.ping_silent()
        queue.ping_silent()
        assert wire.bodies()[2:] == [b"end"]
        await waiting

    run(test)
