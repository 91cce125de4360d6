"""The transport against a real socket server: reuse, a server that hangs up, one that is not there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest

from app.pd.transport import StackTransport

pytestmark = pytest.mark.e2e

Work = Callable[[httpx.AsyncClient, str], Awaitable[None]]


class Server:
    """Answers each request as its path says; counts connections."""

    def __init__(self) -> None:
        self.connections = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split()[1]
                if path == b"/hang-up":
                    return
                closing = b"connection: close\r\n" if path == b"/close" else b""
                writer.write(b"HTTP/1.1 200 OK\r\n" + closing + b"content-length: 4\r\n\r\n")
                writer.write(b"ab" if path == b"/short" else b"abcd")
                await writer.drain()
                if path in (b"/short", b"/close"):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def with_server(work: Work) -> Server:
    async def run() -> Server:
        server = Server()
        listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        async with listening, httpx.AsyncClient(transport=StackTransport(), timeout=10) as client:
            await work(client, url)
        return server

    return asyncio.run(run())


def test_one_connection_serves_one_request_after_another() -> None:
    async def work(client: httpx.AsyncClient, url: str) -> None:
        for _ in range(3):
            assert (await client.get(f"{url}/ok")).text == "abcd"

    assert with_server(work).connections == 1


def test_requests_at_once_have_a_connection_each_and_all_are_kept() -> None:
    async def work(client: httpx.AsyncClient, url: str) -> None:
        for _ in range(2):
            answers = await asyncio.gather(*(client.get(f"{url}/ok") for _ in range(5)))
            assert [answer.status_code for answer in answers] == [200] * 5

    assert with_server(work).connections == 5


def test_closed_connection_is_not_used_again() -> None:
    async def work(client: httpx.AsyncClient, url: str) -> None:
        for _ in range(2):
            assert (await client.get(f"{url}/close")).status_code == 200

    assert with_server(work).connections == 2


def test_answer_given_up_half_read_gives_its_connection_up() -> None:
    async def work(client: httpx.AsyncClient, url: str) -> None:
        async with client.stream("GET", f"{url}/ok"):
            pass
        assert (await client.get(f"{url}/ok")).text == "abcd"

    assert with_server(work).connections == 2


@pytest.mark.parametrize("path", ["/hang-up", "/short"])
def test_server_that_hangs_up_is_httpx_s_own_error(path: str) -> None:
    async def work(client: httpx.AsyncClient, url: str) -> None:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get(url + path)

    with_server(work)


def test_nobody_there_is_httpx_s_connect_error() -> None:
    async def work(client: httpx.AsyncClient, url: str) -> None:
        with pytest.raises(httpx.ConnectError):
            await client.get("http://127.0.0.1:1/")

    with_server(work)
