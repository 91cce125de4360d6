"""The router against fake servers: what it sends them, and what the client gets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import unquote

import httpx
import pytest

from app.route.backends import RoutePolicy
from app.route.server import Router, RouterSettings

PARAMS = {"do_remote_prefill": True, "remote_engine_id": "e", "remote_request_id": "h"}
CHAT = {
    "model": "m",
    "messages": [],
    "max_tokens": 7,
    "max_completion_tokens": 9,
    "min_tokens": 3,
    "stream": True,
    "stream_options": {"include_usage": True},
}
Handler = Callable[[httpx.Request], Any]


class Pieces(httpx.AsyncByteStream):
    """A body that comes in pieces; an exception among them breaks it off."""

    def __init__(self, *pieces: bytes | Exception | asyncio.Event) -> None:
        self.pieces = pieces
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, asyncio.Event):
                await piece.wait()
            elif isinstance(piece, Exception):
                raise piece
            else:
                yield piece

    async def aclose(self) -> None:
        self.closed = True


class World:
    """A router whose network is a table of handlers by host; keeps every request that it saw."""

    def __init__(self, **handlers: Handler) -> None:
        self.handlers = {"p": self.prefill, "d": self.decode} | handlers
        self.seen: list[httpx.Request] = []
        self.sent: list[dict[str, Any]] = []
        self.left = asyncio.Event()
        self.client_got_body = asyncio.Event()

    def prefill(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.startswith("/pd/"):
            return httpx.Response(200, json={"result": "applied"})
        return httpx.Response(200, json={"choices": [], "kv_transfer_params": PARAMS})

    def decode(self, request: httpx.Request) -> httpx.Response:
        return stream_of(b'data: {"a":1}\n\n', b"data: [DONE]\n\n")

    async def network(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        answer = self.handlers[request.url.host](request)
        if asyncio.iscoroutine(answer):
            answer = await answer
        assert isinstance(answer, httpx.Response)
        if answer.is_stream_consumed:  # built whole: let it be read as from a socket
            return httpx.Response(answer.status_code, headers=answer.headers, stream=Pieces(answer.content))
        return answer

    async def ask(
        self,
        body: Any = CHAT,
        path: str = "/v1/chat/completions",
        headers: list[tuple[bytes, bytes]] | None = None,
        prefill: tuple[str, ...] = ("http://p",),
        decode: tuple[str, ...] = ("http://d",),
    ) -> Router:
        router = Router(
            RouterSettings(prefill, decode, RoutePolicy.ROUND_ROBIN), httpx.MockTransport(self.network)
        )
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        inbox = [{"type": "http.request", "body": raw}]

        async def receive() -> dict[str, Any]:
            if inbox:
                return inbox.pop()
            await self.left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            self.sent.append(message)
            if message.get("body"):
                self.client_got_body.set()

        scope = {
            "type": "http",
            "method": "POST",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers or [],
        }
        async with router.client:
            await router(scope, receive, send)
            await router.tasks.finished()
        return router

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def calls(self) -> list[str]:
        return [f"{request.url.host}{request.url.path.rsplit('/', 1)[1]}" for request in self.seen]

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"]["message"])


def stream_of(*pieces: bytes | Exception | asyncio.Event) -> httpx.Response:
    return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Pieces(*pieces))


def unreachable(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


def ended(router: Router) -> dict[str, int]:
    shown = router.lanes.as_json()
    assert shown["open"] == 0
    assert all(backend.in_flight == 0 for backend in router.prefill.backends + router.decode.backends)
    return {state: count for state, count in shown["ended"].items() if count}


def test_prefill_is_asked_for_one_token_as_the_contract_says() -> None:
    world = World()
    asyncio.run(world.ask())
    sent = json.loads(world.seen[0].content)
    params = sent.pop("kv_transfer_params")
    assert sent == {
        "model": "m",
        "messages": [],
        "max_tokens": 1,
        "max_completion_tokens": 1,
        "stream": False,
    }
    assert params.pop("handoff_id")
    assert params == {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }


def test_decode_gets_the_original_limits_and_the_parameters_unchanged() -> None:
    world = World()
    asyncio.run(world.ask())
    assert json.loads(world.seen[1].content) == CHAT | {"kv_transfer_params": PARAMS}


def test_absent_max_completion_tokens_stays_absent() -> None:
    world = World()
    asyncio.run(world.ask({"model": "m", "prompt": "x"}, "/v1/completions"))
    assert "max_completion_tokens" not in json.loads(world.seen[0].content)


def test_both_legs_carry_the_callers_request_id_and_key() -> None:
    world = World()
    asyncio.run(
        world.ask(headers=[(b"x-request-id", b"abc"), (b"authorization", b"Bearer k"), (b"host", b"r")])
    )
    assert [request.headers["x-request-id"] for request in world.seen] == ["abc", "abc"]
    assert [request.headers["authorization"] for request in world.seen] == ["Bearer k", "Bearer k"]
    assert [request.headers["host"] for request in world.seen] == ["p", "d"]


def test_missing_request_id_is_made_once_for_both_legs() -> None:
    world = World()
    asyncio.run(world.ask())
    first, second = (request.headers["x-request-id"] for request in world.seen)
    assert first and first == second


def test_stream_is_passed_on_piece_by_piece() -> None:
    world = World(d=lambda request: stream_of(b"data: 1\n\n", b"data: 2\n\n"))
    router = asyncio.run(world.ask())
    assert [message.get("body") for message in world.sent] == [None, b"data: 1\n\n", b"data: 2\n\n", b""]
    assert ended(router) == {"done": 1}
    assert world.calls == ["pcompletions", "dcompletions"]


def test_first_piece_arrives_before_the_second_exists() -> None:
    async def run() -> World:
        gate = asyncio.Event()
        world = World(d=lambda request: stream_of(b"data: 1\n\n", gate, b"data: 2\n\n"))
        asking = asyncio.ensure_future(world.ask())
        await world.client_got_body.wait()
        gate.set()
        await asking
        return world

    assert asyncio.run(run()).body == b"data: 1\n\ndata: 2\n\n"


def test_plain_answer_is_passed_on_with_its_length() -> None:
    world = World(d=lambda request: httpx.Response(200, json={"ok": 1}, headers={"x-request-id": "abc"}))
    asyncio.run(world.ask())
    headers = dict(world.sent[0]["headers"])
    assert json.loads(world.body) == {"ok": 1}
    assert headers[b"content-length"] == str(len(world.body)).encode()
    assert headers[b"x-request-id"] == b"abc"


def test_prefill_error_reaches_the_client_as_it_is_and_decode_is_not_asked() -> None:
    world = World(p=lambda request: httpx.Response(400, json={"error": {"message": "too long"}}))
    router = asyncio.run(world.ask())
    assert (world.status, world.error, world.calls) == (400, "too long", ["pcompletions"])
    assert ended(router) == {"failed": 1}


def test_decode_error_reaches_the_client_and_the_hold_is_given_back() -> None:
    world = World(d=lambda request: httpx.Response(400, json={"error": {"message": "stale"}}))
    router = asyncio.run(world.ask())
    assert (world.status, world.error) == (400, "stale")
    assert world.calls == ["pcompletions", "dcompletions", "pcancel"]
    handoff_id = json.loads(world.seen[0].content)["kv_transfer_params"]["handoff_id"]
    assert world.seen[2].url.path == f"/pd/holds/{handoff_id}/cancel"
    assert ended(router) == {"failed": 1}


def test_no_reachable_decode_server_is_a_503_that_names_them() -> None:
    world = World(d=unreachable)
    asyncio.run(world.ask())
    assert world.status == 503
    assert "http://d" in world.error
    assert world.calls[-1] == "pcancel"


def test_unreachable_server_is_passed_by() -> None:
    world = World(x=unreachable)
    router = asyncio.run(world.ask(decode=("http://x", "http://d")))
    assert world.status == 200
    assert [backend.unreachable for backend in router.decode.backends] == [1, 0]
    assert ended(router) == {"done": 1}


def test_server_that_dies_before_its_answer_is_a_502_and_not_asked_again() -> None:
    def dies(request: httpx.Request) -> httpx.Response:
        raise httpx.RemoteProtocolError("Server disconnected.", request=request)

    world = World(x=dies)
    asyncio.run(world.ask(decode=("http://x", "http://d")))
    assert world.status == 502
    assert "http://x" in world.error
    assert world.calls == ["pcompletions", "xcompletions", "pcancel"]


def test_stream_that_breaks_off_ends_with_an_error_record_and_done() -> None:
    world = World(d=lambda request: stream_of(b"data: 1\n\n", httpx.ReadError("reset")))
    router = asyncio.run(world.ask())
    first, *_, error, done = [record for record in world.body.split(b"\n\n") if record]
    assert first == b"data: 1"
    assert "broke off" in json.loads(error.removeprefix(b"data: "))["error"]["message"]
    assert done == b"data: [DONE]"
    assert ended(router) == {"failed": 1}


def test_plain_answer_that_breaks_off_is_a_502() -> None:
    broken = httpx.Response(
        200, headers={"content-type": "application/json"}, stream=Pieces(httpx.ReadError("x"))
    )
    world = World(d=lambda request: broken)
    asyncio.run(world.ask())
    assert world.status == 502


def test_prefill_without_parameters_is_a_502_that_says_how_to_start_it() -> None:
    world = World(p=lambda request: httpx.Response(200, json={"choices": []}))
    asyncio.run(world.ask())
    assert world.status == 502
    assert "--disaggregation-mode prefill" in world.error


@pytest.mark.parametrize("body", [b"not json", b"[]"])
def test_body_that_is_no_object_is_left_to_the_decode_server_to_refuse(body: bytes) -> None:
    world = World(d=lambda request: httpx.Response(400, json={"error": {"message": "bad"}}))
    asyncio.run(world.ask(body))
    assert (world.status, world.calls) == (400, ["dcompletions"])


@pytest.mark.parametrize("path", ["/v1/models/a%2Fb%3Fc", "/v1/models/a%01b", "/v1/models/%C3%BC"])
def test_escaped_path_arrives_as_the_client_wrote_it(path: str) -> None:
    world = World()
    asyncio.run(world.ask({}, path=path))
    assert [request.url.raw_path for request in world.seen] == [path.encode()]


def test_other_paths_go_to_a_decode_server_as_they_are() -> None:
    world = World(d=lambda request: httpx.Response(200, json={"tokens": []}))
    asyncio.run(world.ask({"prompt": "x"}, "/tokenize"))
    assert json.loads(world.seen[0].content) == {"prompt": "x"}
    assert world.calls == ["dtokenize"]


@pytest.mark.parametrize("stage", ["prefill", "before the stream", "in the stream"])
def test_client_that_leaves_ends_the_leg_and_gives_back_what_nobody_took(stage: str) -> None:
    async def run() -> tuple[World, Router]:
        never, reached = asyncio.Event(), asyncio.Event()

        async def hangs(request: httpx.Request) -> httpx.Response:
            if request.url.path.startswith("/pd/"):
                return httpx.Response(200)
            reached.set()
            await never.wait()
            raise AssertionError

        if stage == "prefill":
            world = World(p=hangs)
        elif stage == "before the stream":
            world = World(d=hangs)
        else:
            world = World(d=lambda request: stream_of(b"data: 1\n\n", never))
            reached = world.client_got_body
        asking = asyncio.ensure_future(world.ask())
        await reached.wait()
        world.left.set()
        return world, await asking

    world, router = asyncio.run(run())
    assert (world.calls[-1] == "pcancel") == (stage != "in the stream")
    assert ended(router) == {"cancelled": 1}
