"""Many real connections at once: nothing mixed, nothing lost, nothing left behind."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.openai.choice import ChoiceRun
from mocker_core.request import RequestId
from tests.harness.asgi_stream import parse_records, stream_text
from tests.harness.live_server import LiveServer, ServerProcess

pytestmark = pytest.mark.e2e


def fast_server(**settings: Any) -> LiveServer:
    return LiveServer(**{"speedup_ratio": 200.0, "block_size": 16, "max_num_seqs": 512, **settings})


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with fast_server() as live:
        yield live


class Stream:
    """One raw HTTP client that streams a chat, so that it can vanish in the middle."""

    def __init__(self, port: int, body: dict[str, Any]) -> None:
        self._port = port
        self._body = json.dumps(body).encode()
        self.data = b""
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(self._body)}\r\n\r\n"
        self._writer.write(head.encode() + self._body)

    async def read_some(self) -> None:
        """Until the first tokens are there."""
        while b"data: " not in self.data:
            self.data += await self._reader.read(65536)

    async def read_all(self) -> list[Any]:
        while not self.data.endswith(b"0\r\n\r\n"):
            more = await self._reader.read(65536)
            assert more, "the server closed the connection"
            self.data += more
        self._writer.close()
        return parse_records(unchunk(self.data))

    def vanish(self) -> None:
        self._writer.transport.abort()


def unchunk(data: bytes) -> bytes:
    """The body of a chunked answer."""
    rest = data[data.index(b"\r\n\r\n") + 4 :]
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        body += rest[:length]
        rest = rest[length + 2 :]
    return body


def figures(server: LiveServer) -> Any:
    return server.call(lambda: server.state.engine.metrics(0))


def wait_until_idle(server: LiveServer) -> None:
    deadline_s = time.monotonic() + 20
    while figures(server).active_decode_blocks or figures(server).running_requests:
        assert time.monotonic() < deadline_s, figures(server)
        time.sleep(0.01)


def ask(index: int, tokens: int) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": f"Client {index} says hello."}],
        "stream": True,
        "max_tokens": tokens,
        "ignore_eos": True,
        "seed": index,
        "stream_options": {"include_usage": True},
    }


def test_300_streams_at_once_complete_without_cross_talk(server: LiveServer) -> None:
    async def main() -> list[list[Any]]:
        streams = [Stream(server.port, ask(index, 100)) for index in range(300)]
        await asyncio.gather(*(stream.open() for stream in streams))
        return await asyncio.gather(*(stream.read_all() for stream in streams))

    answers = asyncio.run(main())
    alone = asyncio.run(_alone(server, 7))
    assert len(answers) == 300
    for records in answers:
        assert records[-1] == "[DONE]"
        assert records[-2]["usage"]["completion_tokens"] == 100
        assert len({record["id"] for record in records[:-1]}) == 1
        assert sum(bool(record["choices"][0]["delta"]["content"]) for record in records[:-2]) == 100
    assert stream_text(answers[7]) == stream_text(alone)
    assert len({stream_text(records) for records in answers}) == 300
    wait_until_idle(server)
    assert server.call(lambda: len(server.state.dispatcher)) == 0


async def _alone(server: LiveServer, index: int) -> list[Any]:
    stream = Stream(server.port, ask(index, 100))
    await stream.open()
    return await stream.read_all()


def test_health_answers_while_the_engine_is_behind_its_plan_all_the_time() -> None:
    async def main(port: int) -> tuple[list[bytes], bytes]:
        streams = [Stream(port, ask(index, 50_000)) for index in range(64)]
        await asyncio.gather(*(stream.open() for stream in streams))
        await asyncio.gather(*(stream.read_some() for stream in streams))
        reading = [asyncio.create_task(stream.read_all()) for stream in streams]
        answers = [await _get(port, "/health") for _ in range(5)]
        load = await _get(port, "/load")
        for stream, task in zip(streams, reading, strict=True):
            task.cancel()
            stream.vanish()
        return [answer.splitlines()[0] for answer in answers], load

    # A process of its own: a thread would share this one's interpreter lock with the clients.
    flags = ["--speedup-ratio", "1e6", "--num-gpu-blocks-override", "250000", "--max-num-seqs", "64"]
    with ServerProcess([*flags, "--uvicorn-log-level", "warning"]) as server:
        answers, load = asyncio.run(main(server.port))
        assert answers == [b"HTTP/1.1 200 OK"] * 5
        # Not one of the streams was over: each still had thousands of tokens to come.
        assert load.endswith(b'{"server_load":64}')


async def _get(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return answer


def test_the_blocks_of_100_killed_clients_of_200_are_freed() -> None:
    async def main(server: LiveServer) -> None:
        streams = [Stream(server.port, ask(index, 4000)) for index in range(200)]
        await asyncio.gather(*(stream.open() for stream in streams))
        await asyncio.gather(*(stream.read_some() for stream in streams))
        for stream in streams[::2]:
            stream.vanish()
        await until(lambda: figures(server).running_requests <= 100)
        metrics = figures(server)
        assert metrics.running_requests == 100
        assert server.call(lambda: len(server.state.dispatcher)) == 100
        # The survivors' blocks and no others: each of the 100 holds what its own length needs.
        held, active = server.call(
            lambda: (blocks_of_live_runs(server), server.state.engine.metrics(0).active_decode_blocks)
        )
        assert abs(held - active) <= 200
        for stream in streams[1::2]:
            stream.vanish()
        await asyncio.sleep(0)

    with fast_server(speedup_ratio=20.0) as server:
        asyncio.run(main(server))
        wait_until_idle(server)
        assert server.call(lambda: server.state.load) == 0


def blocks_of_live_runs(server: LiveServer) -> int:
    """Blocks of 16 tokens that the live requests need for prompt and answer so far, with what they share."""
    dispatcher = server.state.dispatcher
    runs = [dispatcher.find(RequestId(ident)) for ident in dispatcher.live_ids()]
    lengths = [run.num_prompt_tokens + run.generated for run in runs if isinstance(run, ChoiceRun)]
    return sum(math.ceil(length / 16) for length in lengths)


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not done():  # noqa: ASYNC110 # the server has no event for it
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_vanishes_while_it_waits_frees_its_blocks(stream: bool) -> None:
    async def main(server: LiveServer) -> None:
        waiting = Stream(server.port, {**ask(1, 5000), "stream": stream, "stream_options": None})
        await waiting.open()
        await until(lambda: bool(figures(server).running_requests))
        waiting.vanish()

    with fast_server(speedup_ratio=1.0) as server:
        asyncio.run(main(server))
        wait_until_idle(server)


def test_a_reader_that_sleeps_gets_every_token_later() -> None:
    async def main(server: LiveServer) -> list[Any]:
        slow = Stream(server.port, ask(3, 30_000))
        await slow.open()
        await slow.read_some()
        # The engine ends long before the socket's buffers have taken everything.
        await until(lambda: not server.call(lambda: len(server.state.dispatcher)))
        return await slow.read_all()

    with fast_server(speedup_ratio=1e6) as server:
        records = asyncio.run(main(server))
        assert records[-2]["usage"]["completion_tokens"] == 30_000
        assert sum(bool(record["choices"][0]["delta"]["content"]) for record in records[:-2]) == 30_000
        wait_until_idle(server)
