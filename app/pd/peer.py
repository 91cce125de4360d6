"""The decode server's client to a prefill server: claim a hold, keep its lease, release or cancel it.

The lease is an open HTTP answer: if either process dies, the other sees its end at once. Must not know
requests or the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import orjson

from app.pd.params import KvLoadError, KvLoadFault, RemoteSource, malformed
from app.pd.transport import StackTransport
from mocker_core.handoff.coordinator import AckOutcome
from mocker_core.live.handoff_driver import Ack

CONNECT_TIMEOUT_S = 5.0
REPLY_TIMEOUT_S = 30.0


def peer_http_client() -> httpx.AsyncClient:
    """A client for many peers and many leases at once."""
    return httpx.AsyncClient(
        timeout=httpx.Timeout(REPLY_TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        trust_env=False,
        transport=StackTransport(),
    )


class SourceLease:
    """A source at a prefill server. `claim` it once, `wait_broken` beside the transfer, `close` it."""

    def __init__(self, client: httpx.AsyncClient, source: RemoteSource) -> None:
        """Raises KvLoadError for a host that no request can be sent to."""
        try:
            httpx.URL(source.base_url)
        except (httpx.InvalidURL, ValueError):
            raise malformed("remote_host", source.address.host, "must be a host name or an address") from None
        self._client = client
        self._source = source
        self._stack = AsyncExitStack()
        self._lines: AsyncIterator[str] | None = None
        self.transfer_delay_ms: float | None = None

    async def claim(self, prompt_tokens: int, prompt_hash: int) -> None:
        """Raises KvLoadError: the peer's own reason, or that it can't be reached."""
        body = {
            "engine_id": self._source.engine_id,
            "prompt_tokens": prompt_tokens,
            "prompt_hash": f"{prompt_hash:016x}",
        }
        request = self._client.build_request(
            "POST", self._url("claim"), json=body, timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
        )
        try:
            async with asyncio.timeout(REPLY_TIMEOUT_S):
                answer = await self._client.send(request, stream=True)
                self._stack.push_async_callback(answer.aclose)
                if answer.status_code != 200:
                    raise _refusal(answer.status_code, await answer.aread())
                self._lines = answer.aiter_lines()
                granted = orjson.loads(await anext(self._lines))
        except (httpx.HTTPError, TimeoutError, StopAsyncIteration, orjson.JSONDecodeError) as error:
            raise KvLoadError(
                KvLoadFault.UNREACHABLE,
                f"The prefill server {self._source.base_url} gave no answer: {_cause(error)}.",
            ) from error
        self.transfer_delay_ms = granted.get("transfer_delay_ms")

    async def wait_broken(self) -> str:
        """Return, with the reason, when the source is gone: it ended its hold, or its server is dead."""
        assert self._lines is not None
        try:
            async for line in self._lines:
                return f"the source was {orjson.loads(line).get('end', 'ended')}"
        except (httpx.HTTPError, orjson.JSONDecodeError) as error:
            return _cause(error)
        return "the connection ended"

    async def release(self) -> Ack:
        return await self._tell("release")

    async def cancel(self) -> Ack:
        return await self._tell("cancel")

    async def close(self) -> None:
        """End the lease; a hold that was neither released nor cancelled is cancelled by its server."""
        await self._stack.aclose()

    async def _tell(self, what: str) -> Ack:
        try:
            answer = await self._client.post(self._url(what))
            result = answer.json().get("result") if answer.status_code == 200 else None
        except (httpx.HTTPError, ValueError) as error:
            return Ack(AckOutcome.LOST, _cause(error))
        if result is None:
            return Ack(AckOutcome.LOST, f"the prefill server answered {answer.status_code}")
        return Ack(AckOutcome.APPLIED if result == "applied" else AckOutcome.NOOP)

    def _url(self, what: str) -> str:
        return f"{self._source.base_url}/pd/holds/{self._source.handoff_id}/{what}"


def _refusal(status: int, raw: bytes) -> KvLoadError:
    """The peer's own fault and sentence, if it is a mocker's; else its status."""
    try:
        error: Any = orjson.loads(raw)
        return KvLoadError(KvLoadFault(error["fault"]), str(error["error"]["message"]))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return KvLoadError(
            KvLoadFault.UNREACHABLE, f"The prefill server answered {status} where a hold was to be claimed."
        )


def _cause(error: Exception) -> str:
    return str(error).rstrip(".") or type(error).__name__
