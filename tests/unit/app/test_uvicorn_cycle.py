"""Which `send` is recognised as uvicorn's own, and what goes to its transport."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.stream_response import HotResponse, WriteQueue
from app.uvicorn_cycle import cycle_of


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.broken = False

    def write(self, data: bytes) -> None:
        if self.broken:
            raise RuntimeError("the handler is closed")
        self.written.append(data)

    def is_closing(self) -> bool:
        return False


def make_cycle(method: str = "POST") -> tuple[Any, Transport]:
    transport = Transport()
    logger = logging.getLogger("test")
    cycle = RequestResponseCycle(
        scope={"method": method, "type": "http"},  # type: ignore[typeddict-item]
        transport=transport,  # type: ignore[arg-type]
        flow=FlowControl(transport),  # type: ignore[arg-type]
        logger=logger,
        access_logger=logger,
        access_log=False,
        default_headers=[],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=True,
        on_response=lambda: None,
    )
    return cycle, transport


def streaming(cycle: Any) -> HotResponse:
    """A response whose head and first record are out."""
    response = HotResponse({}, cycle.send, WriteQueue())
    response.push(b"first")
    response.write()
    return response


def test_a_started_stream_of_uvicorn_is_written_as_http_chunks() -> None:
    cycle, transport = make_cycle()
    response = streaming(cycle)
    found: Any = cycle_of(cycle.send)
    assert found is cycle
    response.push(b"a")
    response.push(b"b" * 19)
    response.write()
    response.finish(b"end")
    response.write()
    body = b"".join(transport.written).partition(b"\r\n\r\n")[2]
    assert body == b"5\r\nfirst\r\n14\r\na" + b"b" * 19 + b"\r\n3\r\nend\r\n0\r\n\r\n"
    assert cycle.response_complete


def test_an_empty_record_ends_no_stream() -> None:
    cycle, transport = make_cycle()
    response = streaming(cycle)
    response.push(b"")
    response.write()
    assert not any(b"0\r\n\r\n" in data for data in transport.written)
    assert not cycle.response_complete


def test_nothing_goes_straight_to_a_paused_or_lost_transport() -> None:
    async def scenario() -> None:
        cycle, transport = make_cycle()
        response = streaming(cycle)
        written = len(transport.written)
        cycle.flow.pause_writing()
        response.push(b"later")
        response.write()
        assert len(transport.written) == written
        cycle.flow.resume_writing()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert transport.written[-1] == b"5\r\nlater\r\n"
        cycle.disconnected = True
        response.push(b"never")
        response.write()
        assert transport.written[-1] == b"5\r\nlater\r\n"

    asyncio.run(scenario())


def test_a_broken_transport_loses_the_stream() -> None:
    cycle, transport = make_cycle()
    response = streaming(cycle)
    transport.broken = True
    response.push(b"x")
    response.write()
    assert response.lost


def test_before_the_start_after_the_end_for_head_and_for_others_send_is_used() -> None:
    cycle, _ = make_cycle()
    assert cycle_of(cycle.send) is None
    response = streaming(cycle)
    response.finish(b"end")
    response.write()
    assert cycle_of(cycle.send) is None
    head, _ = make_cycle("HEAD")
    streaming(head)
    assert cycle_of(head.send) is None

    async def other_send(message: Any) -> None: ...

    assert cycle_of(other_send) is None


def test_a_cycle_that_lacks_something_is_not_used() -> None:
    cycle, _ = make_cycle()
    streaming(cycle)
    del cycle.flow
    assert cycle_of(cycle.send) is None
