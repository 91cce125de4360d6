"""One request through the router: the prefill leg, then the decode leg, its bytes passed on as they come.

Follows vLLM's P/D proxy contract, so the servers may be vLLM's own. Must not know tokens or engines.
A client that leaves cancels whichever leg runs; a hold that no decode server took is given back.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
from starlette.types import Send

from app import sse
from app.errors import ApiError, error_body
from app.pd.tasks import TaskSet
from app.route.backends import Backend, BackendPool
from app.route.lanes import Lane, LaneBook, LaneState

_PREFILL_PARAMS = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
# Belong to one connection, or are written anew.
_NOT_PASSED_ON = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization te trailer transfer-encoding upgrade "
    b"host content-length accept-encoding x-request-id".split()
)
_GIVE_BACK_TIMEOUT_S = 2.0

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A request as it came in. `disaggregate`: it has both legs, else it goes to a decode server as it is."""

    method: str
    target: str
    headers: Headers
    body: bytes
    disaggregate: bool


class PassedError(Exception):
    """A server's own error answer, which the client gets as it is."""

    def __init__(self, status: int, headers: Headers, body: bytes) -> None:
        super().__init__(f"The server answered {status}.")
        self.status, self.headers, self.body = status, headers, body


class PdProxy:
    """Carries requests over; holds no state of a request beyond its `serve` call."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        prefill: BackendPool,
        decode: BackendPool,
        lanes: LaneBook,
        tasks: TaskSet,
    ) -> None:
        self._client = client
        self._prefill = prefill
        self._decode = decode
        self._lanes = lanes
        self._tasks = tasks

    async def serve(self, request: ProxyRequest, send: Send) -> None:
        """Answer one request. Cancel the call when the client leaves."""
        request_id = _request_id(request.headers)
        headers = _upstream_headers(request.headers, request_id)
        lane = self._lanes.open(request_id)
        leg = _Answer(send)
        handoff_id: str | None = None
        try:
            body = request.body
            if request.disaggregate and (parsed := _parsed(body)) is not None:
                handoff_id = uuid.uuid4().hex
                params = await self._run_prefill(request, headers, _prefill_body(parsed, handoff_id), lane)
                body = orjson.dumps(parsed | {"kv_transfer_params": params})
            lane.state = LaneState.TRANSFER
            await self._run_decode(request, headers, body, lane, leg)
            problem = leg.broken or (f"status {leg.status}" if leg.status >= 400 else None)
            self._lanes.close(lane, LaneState.FAILED if problem else LaneState.DONE, problem)
        except PassedError as passed:
            handoff_id = None
            self._lanes.close(lane, LaneState.FAILED, f"status {passed.status} from prefill")
            await leg.whole(passed.status, passed.headers, passed.body)
        except ApiError as error:
            self._lanes.close(lane, LaneState.FAILED, error.message)
            await leg.error(error, request_id)
        finally:
            self._lanes.close(lane, LaneState.CANCELLED, "The client left.")
            if handoff_id is not None and lane.prefill is not None and not leg.accepted:
                # Not awaited: this call is cancelled when the client has its answer or is gone.
                self._tasks.spawn(self._give_back(lane.prefill, handoff_id), "giving a hold back")

    async def _run_prefill(
        self, request: ProxyRequest, headers: Headers, body: bytes, lane: Lane
    ) -> dict[str, Any]:
        """The transfer parameters that the prefill server answers with."""

        def tried(backend: Backend) -> None:
            lane.prefill = backend.url

        async with _Asked(self._client, self._prefill, tried).send(request, headers, body) as answer:
            raw = await _read_whole(answer, self._prefill.role)
        lane.prefill_ms = self._lanes.elapsed_ms(lane)
        if answer.status_code >= 400:
            raise PassedError(answer.status_code, _client_headers(answer), raw)
        parsed = _parsed(raw)
        params = parsed.get("kv_transfer_params") if parsed is not None else None
        if not isinstance(params, dict):
            raise ApiError(
                502,
                f"The prefill server {lane.prefill} answered without kv_transfer_params; "
                "start it with --disaggregation-mode prefill.",
            )
        return params

    async def _run_decode(
        self, request: ProxyRequest, headers: Headers, body: bytes, lane: Lane, leg: _Answer
    ) -> None:
        def tried(backend: Backend) -> None:
            lane.decode = backend.url

        async with _Asked(self._client, self._decode, tried).send(request, headers, body) as answer:
            lane.state = LaneState.DECODE
            if not answer.headers.get("content-type", "").startswith("text/event-stream"):
                raw = await _read_whole(answer, self._decode.role)
                lane.first_byte_ms = self._lanes.elapsed_ms(lane)
                await leg.whole(answer.status_code, _client_headers(answer), raw)
                return
            await leg.start(answer.status_code, _client_headers(answer))
            lane.first_byte_ms = self._lanes.elapsed_ms(lane)
            try:
                async for chunk in answer.aiter_raw():
                    lane.events += chunk.count(b"data:")
                    await leg.more(chunk)
                await leg.end()
            except httpx.HTTPError as error:
                await leg.break_off(f"The decode server {lane.decode} broke off: {_cause(error)}.")

    async def _give_back(self, prefill_url: str, handoff_id: str) -> None:
        """Tell the source that nobody will come for its blocks. Best effort: they also expire."""
        if self._client.is_closed:  # the router ends
            return
        with suppress(httpx.HTTPError, TimeoutError):
            async with asyncio.timeout(_GIVE_BACK_TIMEOUT_S):
                await self._client.post(f"{prefill_url}/pd/holds/{handoff_id}/cancel")


class _Asked:
    """Sends a request to the first server of a pool that can be reached.

    A server that refuses the connection has done nothing, so the next is tried; any other failure is
    the answer, since the request may have had effects. `tried` is told of each server before it is asked.
    """

    def __init__(
        self, client: httpx.AsyncClient, pool: BackendPool, tried: Callable[[Backend], None]
    ) -> None:
        self._client, self._pool, self._tried = client, pool, tried

    @asynccontextmanager
    async def send(
        self, request: ProxyRequest, headers: Headers, content: bytes
    ) -> AsyncIterator[httpx.Response]:
        """The answer, its head read, its body not yet; closed at the end of the block."""
        for backend in self._pool.candidates():
            self._tried(backend)
            with backend.busy():
                outgoing = self._client.build_request(
                    request.method, backend.url + request.target, headers=headers, content=content
                )
                try:
                    answer = await self._client.send(outgoing, stream=True)
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    backend.unreachable += 1
                    continue
                except httpx.HTTPError as error:
                    raise ApiError(
                        502, f"The {self._pool.role} server {backend.url} gave no answer: {_cause(error)}."
                    ) from error
                try:
                    yield answer
                finally:
                    await answer.aclose()
                return
        tried = ", ".join(backend.url for backend in self._pool.backends)
        raise ApiError(503, f"No {self._pool.role} server can be reached; start one of {tried}.")


class _Answer:
    """What the client has been sent so far."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.status = 0
        self.broken: str | None = None

    @property
    def accepted(self) -> bool:
        """A server took the request as its own: what it holds from now on is its to clean up."""
        return self.started and self.status < 400

    async def start(self, status: int, headers: Headers) -> None:
        self.started, self.status = True, status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def more(self, chunk: bytes) -> None:
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self, last: bytes = b"") -> None:
        await self._send({"type": "http.response.body", "body": last})

    async def whole(self, status: int, headers: Headers, body: bytes) -> None:
        await self.start(status, [*headers, (b"content-length", str(len(body)).encode())])
        await self.end(body)

    async def error(self, error: ApiError, request_id: str) -> None:
        headers = [(b"content-type", b"application/json"), (b"x-request-id", request_id.encode("latin-1"))]
        await self.whole(error.status, headers, error_body(error, "vllm"))

    async def break_off(self, reason: str) -> None:
        """A failure after the status went out: say it in the stream, then end the stream."""
        self.broken = reason
        # The blank line ends a record that was cut in two; between records it is nothing.
        await self.end(b"\n\n" + sse.data(error_body(ApiError(502, reason), "vllm")) + sse.DONE)


async def _read_whole(answer: httpx.Response, role: str) -> bytes:
    try:
        return b"".join([chunk async for chunk in answer.aiter_raw()])
    except httpx.HTTPError as error:
        host = answer.request.url.netloc.decode("ascii")
        raise ApiError(502, f"The {role} server {host} broke off: {_cause(error)}.") from error


def _prefill_body(body: Mapping[str, Any], handoff_id: str) -> bytes:
    """The same request for one token, whose KV stays on the server.

    `handoff_id` is the mocker's own key: it lets a hold be given back whose answer never arrived.
    """
    changed = {key: value for key, value in body.items() if key not in ("stream_options", "min_tokens")}
    params = {**_PREFILL_PARAMS, "handoff_id": handoff_id}
    changed |= {"kv_transfer_params": params, "stream": False, "max_tokens": 1}
    if "max_completion_tokens" in body:
        changed["max_completion_tokens"] = 1
    return orjson.dumps(changed)


def _parsed(raw: bytes) -> dict[str, Any] | None:
    """A JSON object, or None: what is wrong with anything else the servers themselves say."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _request_id(headers: Headers) -> str:
    given = next((value for name, value in headers if name.lower() == b"x-request-id"), b"")
    return given.decode("latin-1") or uuid.uuid4().hex


def _upstream_headers(headers: Headers, request_id: str) -> Headers:
    kept = [(name, value) for name, value in headers if name.lower() not in _NOT_PASSED_ON]
    return [*kept, (b"accept-encoding", b"identity"), (b"x-request-id", request_id.encode("latin-1"))]


def _client_headers(answer: httpx.Response) -> Headers:
    return [
        (name, value)
        for name, value in answer.headers.raw
        if name.lower() == b"x-request-id" or name.lower() not in _NOT_PASSED_ON
    ]


def _cause(error: httpx.HTTPError) -> str:
    return str(error).rstrip(".") or type(error).__name__
