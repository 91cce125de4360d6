"""One side of a handoff on another mocker server, driven through its /admin routes.

Owns the HTTP of commands and of the lifecycle stream that brings the facts. Must not know the coordinator's
order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import orjson

from mocker_core.events import (
    DestinationExpired,
    DestinationReserved,
    SchedulerLifecycleEvent,
    SourceExpired,
    SourceHeld,
)
from mocker_core.handoff.coordinator import AckOutcome, Failed, HandoffSide
from mocker_core.live.handoff_driver import Ack
from mocker_core.request import HandoffId, RequestId

_EVENTS: Mapping[str, type[Any]] = {
    "source_held": SourceHeld,
    "destination_reserved": DestinationReserved,
    "source_expired": SourceExpired,
    "destination_expired": DestinationExpired,
}
Observe = Callable[[SchedulerLifecycleEvent | Failed], None]


class RemoteSide:
    """`SourceEnd` or `DestinationEnd` at `url`. `close` it when the handoff is over.

    `handoff_id` is the id there; facts are told under `told_as`, the coordinator's id.
    """

    def __init__(
        self,
        client: httpx.AsyncClient,
        url: str,
        side: HandoffSide,
        *,
        handoff_id: str,
        told_as: HandoffId,
        request: Mapping[str, Any],
        dp_rank: int | None,
        headers: Mapping[str, str],
    ) -> None:
        self._client = client
        self._url = url.rstrip("/")
        self._side = side
        self._handoff_id = handoff_id
        self._told_as = told_as
        self._request = request
        self._dp_rank = dp_rank
        self._headers = dict(headers)
        self._watch: asyncio.Task[None] | None = None
        self._ending = False
        self.observe: Observe = lambda _: None

    async def submit_prefill(self) -> Ack:
        return await self._begin("prefill")

    async def reserve(self) -> Ack:
        return await self._begin("destination/reserve")

    async def activate(self) -> Ack:
        # Once it decodes, a lost stream of events tells nothing about it.
        self._ending = True
        return await self._tell("destination/activate")

    async def release(self) -> Ack:
        self._ending = True
        return await self._tell("source/release")

    async def cancel(self) -> Ack:
        self._ending = True
        return await self._tell(f"{self._side}/cancel")

    async def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)

    async def _begin(self, path: str) -> Ack:
        """Listen first, then command: no fact can be missed."""
        listening: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watch = asyncio.get_running_loop().create_task(self._listen(listening))
        try:
            await listening
        except httpx.HTTPError as error:
            return Ack(AckOutcome.REFUSED, f"The server {self._url} can't be listened to: {_cause(error)}.")
        body = {"request_id": self._handoff_id, "dp_rank": self._dp_rank, "request": self._request}
        return await self._post(path, body)

    async def _tell(self, path: str) -> Ack:
        return await self._post(path, {})

    async def _post(self, path: str, body: dict[str, Any]) -> Ack:
        try:
            answer = await self._client.post(
                f"{self._url}/admin/handoff/{path}",
                json={"handoff_id": self._handoff_id, **body},
                headers=self._headers,
            )
            said = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            return Ack(AckOutcome.LOST, f"The server {self._url} gave no answer: {_cause(error)}.")
        if answer.status_code >= 500:
            return Ack(AckOutcome.LOST, f"The server {self._url} answered {answer.status_code}.")
        if answer.status_code >= 400:
            return Ack(AckOutcome.REFUSED, _message(said, answer.status_code, self._url))
        return Ack(AckOutcome.NOOP if said.get("result") == "noop" else AckOutcome.APPLIED)

    async def _listen(self, listening: asyncio.Future[None]) -> None:
        reason = "the stream of its events ended"
        try:
            async with self._client.stream(
                "GET",
                f"{self._url}/admin/events/lifecycle",
                params={"from": "now"},
                headers=self._headers,
                timeout=httpx.Timeout(None, connect=5.0),
            ) as answer:
                answer.raise_for_status()
                listening.set_result(None)
                name = ""
                async for line in answer.aiter_lines():
                    if line.startswith("event:"):
                        name = line[6:].strip()
                    elif line.startswith("data:") and name in _EVENTS:
                        self._take(_EVENTS[name], orjson.loads(line[5:]))
        except (httpx.HTTPError, orjson.JSONDecodeError) as error:
            if not listening.done():
                listening.set_exception(error)
                return
            reason = _cause(error)
        if not self._ending:
            self.observe(Failed(self._side, f"The {self._side} server {self._url} was lost: {reason}."))

    def _take(self, kind: type[Any], body: dict[str, Any]) -> None:
        if body.pop("handoff_id", None) != self._handoff_id:
            return
        body.pop("dp_rank", None)
        request_id = RequestId(body.pop("request_id"))
        self.observe(kind(handoff_id=self._told_as, request_id=request_id, **body))


def _message(said: Any, status: int, url: str) -> str:
    error = said.get("error") if isinstance(said, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    return f"The server {url} refused: {text or status}"


def _cause(error: Exception) -> str:
    return str(error).rstrip(".") or type(error).__name__
