"""The router as an ASGI app: which paths have two legs, health, lanes, and the end with the client.

Must not know how a leg is carried out; that is `proxy`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from app.pd.tasks import TaskSet
from app.pd.transport import StackTransport
from app.route.backends import Backend, BackendPool, RoutePolicy
from app.route.lanes import LaneBook
from app.route.proxy import PdProxy, ProxyRequest

_DISAGGREGATED = frozenset({"/v1/chat/completions", "/v1/completions"})
_HEALTH_TIMEOUT_S = 2.0
_CONNECT_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """What a router needs to know. URLs are the servers' base addresses, without /v1."""

    prefill: Sequence[str]
    decode: Sequence[str]
    policy: RoutePolicy = RoutePolicy.ROUND_ROBIN


class Router:
    """The ASGI endpoint of every path that is not the router's own."""

    def __init__(self, settings: RouterSettings, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.prefill = BackendPool("prefill", settings.prefill, settings.policy)
        self.decode = BackendPool("decode", settings.decode, settings.policy)
        self.lanes = LaneBook()
        # A stream may be silent for as long as its model thinks; only connecting has a limit.
        self.client = httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S),
            trust_env=False,
            transport=transport or StackTransport(),
        )
        self.tasks = TaskSet()
        self._proxy = PdProxy(self.client, self.prefill, self.decode, self.lanes, self.tasks)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await _whole_body(receive)
        if body is None:
            return
        query = scope.get("query_string", b"").decode("latin-1")
        path: str = scope["path"]
        # As the client wrote it: unescaped, a / or ? in an id would change its meaning.
        target = scope["raw_path"].decode("latin-1")
        request = ProxyRequest(
            method=scope["method"],
            target=target + (f"?{query}" if query else ""),
            headers=list(scope["headers"]),
            body=body,
            disaggregate=scope["method"] == "POST" and path in _DISAGGREGATED,
        )
        async with asyncio.TaskGroup() as group:
            work = group.create_task(self._proxy.serve(request, send))
            watch = group.create_task(_cancel_when_gone(receive, work))
            await asyncio.wait([work])
            watch.cancel()

    async def health(self, _: Request) -> Response:
        """200 while each role has a server that answers 200."""
        pools = (self.prefill, self.decode)
        found = [await self._any_healthy(pool) for pool in pools]
        if all(found):
            return Response(status_code=200)
        missing = " and ".join(pool.role for pool, healthy in zip(pools, found, strict=True) if not healthy)
        return _json({"error": f"No {missing} server is healthy."}, 503)

    async def show_lanes(self, _: Request) -> Response:
        backends = [
            {
                "role": pool.role,
                "url": backend.url,
                "in_flight": backend.in_flight,
                "sent": backend.sent,
                "unreachable": backend.unreachable,
            }
            for pool in (self.prefill, self.decode)
            for backend in pool.backends
        ]
        return _json({**self.lanes.as_json(), "backends": backends})

    async def _any_healthy(self, pool: BackendPool) -> bool:
        async def healthy(backend: Backend) -> bool:
            try:
                answer = await self.client.get(f"{backend.url}/health", timeout=_HEALTH_TIMEOUT_S)
            except httpx.HTTPError:
                return False
            return answer.status_code == 200

        return any(await asyncio.gather(*(healthy(backend) for backend in pool.backends)))


def create_router_app(
    settings: RouterSettings, transport: httpx.AsyncBaseTransport | None = None
) -> Starlette:
    """The ASGI app of one router; its connections live as long as its lifespan. `transport`: for tests."""
    router = Router(settings, transport)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with router.client:
            yield
            await router.tasks.finished()

    return Starlette(
        routes=[
            Route("/health", router.health),
            Route("/admin/lanes", router.show_lanes),
            Mount("/", app=router),
        ],
        lifespan=lifespan,
    )


def _json(value: object, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


async def _whole_body(receive: Receive) -> bytes | None:
    """The request's body; None if the client left before its end."""
    parts: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def _cancel_when_gone(receive: Receive, work: asyncio.Task[None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    work.cancel()
