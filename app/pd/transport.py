"""httpx's transport over a stack of kept connections per server: constant cost however many are open.

httpcore's own pool looks at every connection for every request, which costs seconds at a few hundred
streams. Owns connections only; no limits, no proxies, no redirects.
"""

from __future__ import annotations

import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import httpcore
import httpx

# Less than the 5 s after which uvicorn closes a silent connection: else it may go just as it is taken.
_KEEPALIVE_S = 4.0
_KEPT_PER_ORIGIN = 256

_Origin = tuple[bytes, bytes, int]


class StackTransport(httpx.AsyncBaseTransport):
    """For one `httpx.AsyncClient` on one event loop; raises httpx's own exceptions."""

    def __init__(self) -> None:
        self._idle: defaultdict[_Origin, list[httpcore.AsyncHTTPConnection]] = defaultdict(list)
        self._tls: ssl.SSLContext | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        url = request.url
        core_request = httpcore.Request(
            method=request.method,
            url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        connection = await self._connection(core_request.url.origin)
        try:
            with _as_httpx(request):
                answer = await connection.handle_async_request(core_request)
        except BaseException:
            await connection.aclose()
            raise
        stream = _Body(self, core_request.url.origin, connection, answer, request)
        return httpx.Response(
            answer.status, headers=answer.headers, stream=stream, extensions=answer.extensions
        )

    async def aclose(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                await connection.aclose()
        self._idle.clear()

    async def give_back(self, origin: httpcore.Origin, connection: httpcore.AsyncHTTPConnection) -> None:
        """The answer was read or given up: keep the connection if it can be used again."""
        idle = self._idle[_key(origin)]
        if connection.is_idle() and len(idle) < _KEPT_PER_ORIGIN:
            idle.append(connection)
        else:
            await connection.aclose()

    async def _connection(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection:
        idle = self._idle[_key(origin)]
        while idle:
            kept = idle.pop()
            if not kept.has_expired():
                return kept
            await kept.aclose()
        if origin.scheme == b"https" and self._tls is None:
            self._tls = httpx.create_ssl_context()
        return httpcore.AsyncHTTPConnection(origin, ssl_context=self._tls, keepalive_expiry=_KEEPALIVE_S)


class _Body(httpx.AsyncByteStream):
    """An answer's body; its connection goes back when it is closed."""

    def __init__(
        self,
        transport: StackTransport,
        origin: httpcore.Origin,
        connection: httpcore.AsyncHTTPConnection,
        answer: httpcore.Response,
        request: httpx.Request,
    ) -> None:
        self._transport, self._origin, self._connection = transport, origin, connection
        self._answer, self._request = answer, request
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        with _as_httpx(self._request):
            async for chunk in self._answer.aiter_stream():
                yield chunk

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._answer.aclose()
        await self._transport.give_back(self._origin, self._connection)


def _key(origin: httpcore.Origin) -> _Origin:
    return origin.scheme, origin.host, origin.port


@contextmanager
def _as_httpx(request: httpx.Request) -> Iterator[None]:
    """httpcore's exceptions have the names of httpx's."""
    try:
        yield
    except (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError) as error:
        kind = getattr(httpx, type(error).__name__, httpx.TransportError)
        raise kind(str(error), request=request) from error
