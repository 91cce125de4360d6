"""The router between real servers: many chats at once, the SDK, errors and clients that leave."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import orjson
import pytest

from app.pd.transport import StackTransport
from app.route.backends import RoutePolicy
from tests.harness.live_server import LiveServer
from tests.harness.pd import LiveRouter, assert_drained, eventually, service_of

pytestmark = pytest.mark.e2e

CHAT = "/v1/chat/completions"
FAST: dict[str, Any] = {
    "timing_model": {"type": "fixed", "prefill_ms": 2, "decode_ms": 1},
    "kv_bytes_per_token": 1000,
}


@pytest.fixture(scope="module")
def prefill() -> Iterator[LiveServer]:
    with LiveServer(disaggregation_mode="prefill", **FAST) as server:
        yield server


@pytest.fixture(scope="module")
def decodes() -> Iterator[list[LiveServer]]:
    with (
        LiveServer(disaggregation_mode="decode", **FAST) as one,
        LiveServer(disaggregation_mode="decode", **FAST) as two,
    ):
        yield [one, two]


@pytest.fixture(scope="module")
def router(prefill: LiveServer, decodes: list[LiveServer]) -> Iterator[LiveRouter]:
    with LiveRouter([prefill.url], [server.url for server in decodes], RoutePolicy.LEAST_LOADED) as running:
        yield running


@pytest.fixture(autouse=True)
def drained(prefill: LiveServer, decodes: list[LiveServer]) -> Iterator[None]:
    yield
    assert_drained(prefill, *decodes)


def chat(number: int, tokens: int = 20, **more: Any) -> dict[str, Any]:
    content = f"Request number {number}: " + "say something of use. " * (1 + number % 7)
    return {
        "messages": [{"role": "user", "content": content}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "seed": number,
        **more,
    }


def test_200_chats_at_once_stream_right_and_usage_adds_up(
    router: LiveRouter, prefill: LiveServer, decodes: list[LiveServer]
) -> None:
    usage = {"include_usage": True}
    released = service_of(prefill).snapshot()["sources_ended"].get("released", 0)

    async def one(client: httpx.AsyncClient, number: int) -> tuple[str, dict[str, int]]:
        body = chat(number, stream=True, stream_options=usage)
        async with client.stream("POST", router.url + CHAT, json=body) as answer:
            assert answer.status_code == 200
            lines = [line async for line in answer.aiter_lines() if line]
        assert lines[-1] == "data: [DONE]"
        records = [orjson.loads(line[6:]) for line in lines[:-1]]
        text = "".join(c["delta"].get("content") or "" for record in records for c in record["choices"])
        found: dict[str, int] = records[-1]["usage"]
        return text, found

    async def run() -> list[tuple[str, dict[str, int]]]:
        async with httpx.AsyncClient(timeout=60, transport=StackTransport()) as client:
            return await asyncio.gather(*(one(client, number) for number in range(200)))

    results = asyncio.run(run())
    assert sum(found["completion_tokens"] for _, found in results) == 200 * 20
    for number in range(0, 200, 25):  # the same seed and prompt say the same without a handoff
        alone = httpx.post(decodes[0].url + CHAT, json=chat(number), timeout=30).json()
        text, found = results[number]
        assert text == alone["choices"][0]["message"]["content"]
        assert found["prompt_tokens"] == alone["usage"]["prompt_tokens"]
    assert_drained(prefill, *decodes)
    assert service_of(prefill).snapshot()["sources_ended"]["released"] == released + 200
    shares = [service_of(server).snapshot()["handoffs"]["completed"] for server in decodes]
    assert sum(shares) >= 200
    assert min(shares) > 50


def test_pools_too_small_for_the_load_serve_all_of_it_in_turn() -> None:
    tight = {**FAST, "block_size": 16, "num_gpu_blocks_override": 24}

    async def run(url: str) -> list[int]:
        async with httpx.AsyncClient(timeout=60, transport=StackTransport()) as client:
            bodies = [
                {"prompt": [n * 1000 + at for at in range(70)], "max_tokens": 60, "ignore_eos": True}
                for n in range(40)
            ]
            answers = await asyncio.gather(
                *(client.post(f"{url}/v1/completions", json=body) for body in bodies)
            )
            return [answer.json()["usage"]["completion_tokens"] for answer in answers]

    with (
        LiveServer(disaggregation_mode="prefill", **tight) as prefill,
        LiveServer(disaggregation_mode="decode", **tight) as decode,
        LiveRouter([prefill.url], [decode.url]) as router,
    ):
        assert asyncio.run(run(router.url)) == [60] * 40
        assert decode.state.engine.metrics(0).vllm_preemptions_total > 0
        assert_drained(prefill, decode)


def test_openai_sdk_streams_through_the_router(router: LiveRouter) -> None:
    with openai.OpenAI(base_url=f"{router.url}/v1", api_key="x", _strict_response_validation=True) as client:
        stream = client.chat.completions.create(
            model="mocker", messages=[{"role": "user", "content": "Hello"}], max_tokens=5, stream=True
        )
        assert sum(1 for chunk in stream if chunk.choices and chunk.choices[0].delta.content) > 0
        assert client.models.list().data[0].id == "mocker"


def test_bad_request_gets_the_prefill_servers_own_error(router: LiveRouter) -> None:
    answer = httpx.post(router.url + CHAT, json={"messages": []})
    assert answer.status_code == 400
    assert "messages is empty" in answer.json()["error"]["message"]


def test_client_that_leaves_in_mid_stream_frees_its_blocks(
    router: LiveRouter, decodes: list[LiveServer]
) -> None:
    with httpx.stream(
        "POST", router.url + CHAT, json=chat(1, tokens=4000, stream=True), timeout=10
    ) as answer:
        assert next(answer.iter_lines()).startswith("data: ")
    # assert_drained after the test waits far less than 4000 tokens take at 1 ms.
    assert_drained(*decodes)
    eventually(
        lambda: httpx.get(f"{router.url}/admin/lanes").json()["ended"]["cancelled"] == 1, "the lane is open"
    )


def test_health_needs_a_server_of_each_role(router: LiveRouter, prefill: LiveServer) -> None:
    assert httpx.get(f"{router.url}/health").status_code == 200
    with LiveRouter([prefill.url], ["http://127.0.0.1:1"]) as lame:
        answer = httpx.get(f"{lame.url}/health")
        assert answer.status_code == 503
        assert "No decode server" in answer.json()["error"]
        refused = httpx.post(lame.url + CHAT, json=chat(1), timeout=20)
        assert refused.status_code == 503
        assert "No decode server can be reached" in refused.json()["error"]["message"]
