"""The outermost ASGI layer: request id, CORS and API keys, without any cost per streamed chunk.

What it adds to answers goes into the response's start. It calls hot routes by itself, past the framework's
layers (a third of a small request's cost); they take the raw `send` and the headers
from `scope["mocker.edge"]`.
"""

from __future__ import annotations

import hmac
import random
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.anthropic.errors import body_for_path, is_messages_path
from app.errors import ApiError, error_body
from app.settings import ServeSettings
from app.stream_response import Header, Receive, Scope, Send

ASGIApp = Callable[[Any, Any, Any], Awaitable[None]]

_KEPT_PATHS = ("/v1", "/v2", "/inference", "/admin")
_REQUEST_ID = b"x-request-id"
# Anthropic's clients look for request-id.
_ANTHROPIC = "/v1/messages"
_LONGEST_REQUEST_ID = 256


@dataclass(slots=True)
class Edge:
    """What the outermost layer knows of a request. `headers` goes out with the answer's start."""

    send: Send
    incoming: Mapping[bytes, bytes]
    request_id: str
    headers: list[Header] = field(default_factory=list)


def edge_of(scope: Scope) -> Edge:
    edge: Edge = scope["mocker.edge"]
    return edge


class EdgeMiddleware:
    """Wraps the whole application; errors of the inside get CORS and request id headers too.

    `hot`: the POST routes, by path, that answer every error by themselves.
    """

    def __init__(self, app: ASGIApp, settings: ServeSettings, hot: Mapping[str, ASGIApp]) -> None:
        self._app = app
        self._hot = hot
        self._settings = settings
        self._cors = _Cors(settings)
        self._new_id = random.Random(secrets.randbits(128)).getrandbits
        self._keys = [key.encode() for key in settings.api_key]
        self._admin_keys = [settings.admin_key.encode()] if settings.admin_key else self._keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        incoming = dict(scope["headers"])
        edge = Edge(send, incoming, self._request_id(incoming.get(_REQUEST_ID)))
        if self._settings.enable_request_id_headers:
            edge.headers.append((_REQUEST_ID, edge.request_id.encode("latin-1", "replace")))
            if scope["path"].startswith(_ANTHROPIC):
                edge.headers.append((b"request-id", edge.request_id.encode("latin-1", "replace")))
        origin = incoming.get(b"origin")
        if origin is not None:
            edge.headers += self._cors.answer_headers(origin)
            if scope["method"] == "OPTIONS" and b"access-control-request-method" in incoming:
                status, headers, body = self._cors.preflight(incoming, origin)
                await _respond(send, status, [*edge.headers, *headers], body)
                return
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        if not self._allowed(scope, path, incoming):
            await _respond(
                send, 401, [*edge.headers, (b"content-type", b"application/json")], self._refusal(path)
            )
            return
        scope["mocker.edge"] = edge
        if scope["method"] == "POST" and path in self._hot:
            try:
                await self._hot[path](scope, receive, send)
            finally:
                # Its `send` leads back to the scope: garbage for the collector otherwise.
                del scope["mocker.edge"]
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *edge.headers]
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _allowed(self, scope: Scope, path: str, incoming: Mapping[bytes, bytes]) -> bool:
        keys = self._admin_keys if _under(path, "/admin") else self._keys
        if not keys or scope["method"] == "OPTIONS" or not any(_under(path, start) for start in _KEPT_PATHS):
            return True
        scheme, _, token = incoming.get(b"authorization", b"").partition(b" ")
        given = token.strip() if scheme.lower() == b"bearer" else b""
        if not given and _under(path, "/v1/messages"):
            given = incoming.get(b"x-api-key", b"")
        matches = [hmac.compare_digest(given, key) for key in keys]
        return any(matches)

    def _request_id(self, given: bytes | None) -> str:
        """The caller's id if it is usable as text in ids and headers, else a new one."""
        if given:
            text = given.decode("latin-1")
            if len(text) <= _LONGEST_REQUEST_ID and text.isprintable():
                return text
        # A seeded generator is several times quicker than uuid4, and nothing here needs to be secret.
        return f"{self._new_id(128):032x}"

    def _refusal(self, path: str) -> bytes:
        if is_messages_path(path):
            return body_for_path(
                path, ApiError(401, "The API key is wrong or missing; send x-api-key: <key>."), "openai"
            )
        if self._settings.wire_profile == "vllm":
            return orjson.dumps({"error": "Unauthorized"})
        error = ApiError(
            401, "Incorrect API key provided; send Authorization: Bearer <key>.", code="invalid_api_key"
        )
        return error_body(error, "openai")


class _Cors:
    """CORS of a public API: what a browser needs, on answers and on preflights."""

    def __init__(self, settings: ServeSettings) -> None:
        self._any_origin = "*" in settings.allowed_origins
        self._origins = {origin.encode() for origin in settings.allowed_origins}
        self._methods = settings.allowed_methods
        self._headers = settings.allowed_headers
        self._credentials = settings.allow_credentials

    def answer_headers(self, origin: bytes) -> list[Header]:
        if not (self._any_origin or origin in self._origins):
            return [(b"vary", b"Origin")]
        shown = b"*" if self._any_origin and not self._credentials else origin
        headers = [
            (b"access-control-allow-origin", shown),
            (b"access-control-expose-headers", b"X-Request-Id"),
        ]
        if shown != b"*":
            headers.append((b"vary", b"Origin"))
        if self._credentials:
            headers.append((b"access-control-allow-credentials", b"true"))
        return headers

    def preflight(self, incoming: Mapping[bytes, bytes], origin: bytes) -> tuple[int, list[Header], bytes]:
        if not (self._any_origin or origin in self._origins):
            return 400, [(b"content-type", b"text/plain; charset=utf-8")], b"Disallowed CORS origin"
        methods = (
            "GET, POST, PUT, PATCH, DELETE, OPTIONS, HEAD"
            if "*" in self._methods
            else ", ".join(self._methods)
        )
        wanted = incoming.get(b"access-control-request-headers", b"*")
        allowed = wanted if "*" in self._headers else ", ".join(self._headers).encode()
        headers = [
            (b"access-control-allow-methods", methods.encode()),
            (b"access-control-allow-headers", allowed),
            (b"access-control-max-age", b"600"),
            (b"content-type", b"text/plain; charset=utf-8"),
        ]
        return 200, headers, b"OK"


def _under(path: str, start: str) -> bool:
    return path.startswith(start) and (len(path) == len(start) or path[len(start)] == "/")


async def _respond(send: Send, status: int, headers: Sequence[Header], body: bytes) -> None:
    start = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body, "more_body": False})
