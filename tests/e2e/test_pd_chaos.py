"""Servers killed and clients gone at random moments of a handoff: nothing leaks, nothing hangs, no lie.

MOCKER_CHAOS_ORDERS sets how many random orders run (200 take some minutes), MOCKER_CHAOS_SEED the first.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from app.pd.transport import StackTransport
from tests.harness.live_server import ServerProcess
from tests.harness.pd import LiveRouter, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ORDERS = int(os.environ.get("MOCKER_CHAOS_ORDERS", "12"))
FIRST_SEED = int(os.environ.get("MOCKER_CHAOS_SEED", "1"))
CHATS, TOKENS = 4, 15
# A chat takes about 80 ms to prefill, 200 ms to transfer and 150 ms to decode.
FLAGS = [
    *("--timing-model", '{"type": "fixed", "prefill_ms": 80, "decode_ms": 10}'),
    *("--kv-bytes-per-token", "1000000", "--kv-transfer-bandwidth", "1"),
    *("--handoff-session-timeout-ms", "3000", "--uvicorn-log-level", "error"),
]
PROMPT_TOKENS = 200
WHOLE_CHAT_S = 0.6


class World:
    """The two servers; a killed one is started anew for the next order."""

    def __init__(self) -> None:
        self._servers: dict[str, ServerProcess] = {}

    def url(self, role: str) -> str:
        if role not in self._servers:
            self._servers[role] = ServerProcess(["--disaggregation-mode", role, *FLAGS]).__enter__()
        return self._servers[role].url

    def kill(self, role: str) -> None:
        server = self._servers.pop(role)
        server.process.kill()
        server.process.wait()

    def close(self) -> None:
        for server in self._servers.values():
            server.stop()

    def assert_drained(self) -> None:
        for role, server in self._servers.items():
            eventually(lambda url=server.url: leftovers(url) == [], f"{role} keeps {leftovers(server.url)}")  # type: ignore[misc]


def leftovers(url: str) -> list[str]:
    figures = httpx.get(f"{url}/admin/metrics", timeout=10).json()
    left = [
        f"{rank['active_decode_blocks']} blocks" for rank in figures["ranks"] if rank["active_decode_blocks"]
    ]
    left += [f"{rank['waiting_requests']} waiting" for rank in figures["ranks"] if rank["waiting_requests"]]
    left += [f"{figures['requests']['live']} requests"] if figures["requests"]["live"] else []
    handoffs = figures["handoffs"]
    left += [f"{key} {handoffs[key]}" for key in ("running", "held_sources") if handoffs[key]]
    return left


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


async def chat(client: httpx.AsyncClient, url: str, number: int, *, stream: bool) -> str:
    """`whole`, or the true error that came instead."""
    body: dict[str, Any] = {
        "prompt": [number * 1000 + n for n in range(PROMPT_TOKENS)],
        "max_tokens": TOKENS,
        "ignore_eos": True,
        "stream": stream,
    }
    answer = await client.post(f"{url}/v1/completions", json=body)
    if answer.status_code != 200:
        return f"{answer.status_code}: {answer.json()['error']['message']}"
    if not stream:
        assert answer.json()["usage"]["completion_tokens"] == TOKENS
        return "whole"
    records = [record for record in answer.text.split("\n\n") if record]
    assert records[-1] == "data: [DONE]", answer.text[-300:]
    last = orjson.loads(records[-2].removeprefix("data: "))
    if "error" in last:
        return f"in the stream: {last['error']['message']}"
    assert sum(1 for record in records if "choices" in record) == TOKENS
    return "whole"


async def run_order(world: World, rng: random.Random) -> list[str]:
    """Some chats at once, and one blow at a random moment; what each client got."""
    victim = rng.choice(["decode", "prefill", "client", "client", "router", "nobody"])
    moment_s = rng.uniform(0, WHOLE_CHAT_S)
    gone = set(rng.sample(range(CHATS), rng.randint(1, CHATS))) if victim == "client" else set()
    with LiveRouter([world.url("prefill")], [world.url("decode")]) as router:
        transport = StackTransport()
        async with httpx.AsyncClient(transport=transport, timeout=20) as client:
            chats = [
                asyncio.ensure_future(chat(client, router.url, number, stream=rng.random() < 0.7))
                for number in range(CHATS)
            ]
            await asyncio.sleep(moment_s)
            if victim in ("decode", "prefill"):
                await asyncio.to_thread(world.kill, victim)
            elif victim == "router":
                await asyncio.to_thread(router.__exit__, None, None, None)
            for number in gone:
                chats[number].cancel()
            results = await asyncio.gather(*chats, return_exceptions=True)
    said = []
    for number, result in enumerate(results):
        if isinstance(result, BaseException):
            cut = isinstance(result, httpx.TransportError) and not isinstance(result, httpx.TimeoutException)
            # Only who left, or lost the very server that it spoke to, may be without an answer.
            assert number in gone or (victim == "router" and cut), f"{victim} at {moment_s:.3f} s: {result!r}"
            said.append("gone")
        else:
            assert result == "whole" or victim in ("decode", "prefill", "router"), result
            said.append(result)
    return [f"{victim} at {moment_s * 1000:.0f} ms", *said]


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + ORDERS))
def test_whatever_dies_whenever_nothing_is_left_behind(world: World, seed: int) -> None:
    said = asyncio.run(run_order(world, random.Random(seed)))
    print("; ".join(said))
    world.assert_drained()
