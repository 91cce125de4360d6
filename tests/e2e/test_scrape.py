"""Scrapes during 200 mixed requests: what /metrics says is what the clients were told, to the token."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from typing import Any

import httpx
import pytest

from app.timeline.tracker import tracker_of
from tests.harness.live_server import LiveServer
from tests.harness.scrape import Samples, parse, total

pytestmark = pytest.mark.e2e


class Clients:
    """Sends the mix and adds up what the answers' usage says. `told`: prompt, completion, cached tokens."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.told: Counter[str] = Counter()
        self.left: list[str] = []
        self.refused = 0

    async def send(self, index: int, rng: random.Random) -> None:
        shared = " ".join(f"word{at}" for at in range(120))
        prompt = f"{shared} and client {index % 7}" if index % 3 else f"Client {index} says hello."
        body = {"prompt": prompt, "max_tokens": rng.randint(1, 120), "ignore_eos": True}
        kind = index % 10
        if kind == 0:
            await self.refuse(body)
        elif kind in (1, 2):
            await self.leave(f"left-{index}", body)
        elif kind == 3:
            await self.choices(body)
        elif kind in (4, 5, 6):
            await self.stream(body)
        else:
            answer = await self.http.post("/v1/completions", json=body)
            self.note(answer.json()["usage"])

    def note(self, usage: dict[str, Any], choices: int = 1) -> None:
        self.told["requests"] += choices
        self.told["prompt"] += usage["prompt_tokens"] * choices
        self.told["completion"] += usage["completion_tokens"]
        if choices == 1:
            self.told["cached"] += usage["prompt_tokens_details"]["cached_tokens"]

    async def refuse(self, body: dict[str, Any]) -> None:
        answer = await self.http.post("/v1/completions", json=body | {"max_tokens": 100_000})
        assert answer.status_code == 400
        self.refused += 1

    async def leave(self, name: str, body: dict[str, Any]) -> None:
        """Go away after the first records."""
        body |= {"stream": True, "max_tokens": 400}
        async with self.http.stream(
            "POST", "/v1/completions", json=body, headers={"X-Request-Id": name}
        ) as answer:
            assert answer.status_code == 200
            async for _ in answer.aiter_lines():
                break
        self.left.append(name)

    async def choices(self, body: dict[str, Any]) -> None:
        answer = await self.http.post(
            "/v1/completions",
            json=body | {"n": 2, "temperature": 1},
            headers={"X-Request-Id": f"two-{id(body)}"},
        )
        self.note(answer.json()["usage"], 2)
        for choice in ("0", "1"):
            timeline = await self.http.get(f"/admin/requests/{choice}_cmpl-two-{id(body)}")
            self.told["cached"] += timeline.json()["cached_tokens"]

    async def stream(self, body: dict[str, Any]) -> None:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        async with self.http.stream("POST", "/v1/completions", json=body) as answer:
            lines = [line async for line in answer.aiter_lines() if line.startswith("data: {")]
        self.note(httpx.Response(200, content=lines[-1].removeprefix("data: ")).json()["usage"])


async def scrape_until(http: httpx.AsyncClient, done: asyncio.Event) -> None:
    """Scrape again and again, at least twice; no counter may fall."""
    before: Samples = {}
    scrapes = 0
    while not done.is_set() or scrapes < 2:
        samples, rising = parse((await http.get("/metrics")).text)
        for key, value in before.items():
            if key[0] in rising:
                assert samples[key] >= value, key
        waiting = total(samples, "vllm:num_requests_waiting")
        assert total(samples, "vllm:num_requests_waiting_by_reason") == waiting
        before = samples
        scrapes += 1
        await asyncio.sleep(0.02)


async def run_mix(url: str) -> tuple[Clients, Samples, list[dict[str, Any]]]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as http:
        clients, rng, done = Clients(http), random.Random(7), asyncio.Event()
        scraper = asyncio.create_task(scrape_until(http, done))
        await asyncio.gather(*(clients.send(index, rng) for index in range(200)))
        samples = await settled(http)
        done.set()
        await scraper
        assert total(samples, "vllm:num_preemptions_total") > 0
        left = [(await http.get(f"/admin/requests/{name}")).json() for name in clients.left]
        return clients, samples, left


async def settled(http: httpx.AsyncClient) -> Samples:
    """The figures once nothing runs any more."""
    deadline_s = time.monotonic() + 20
    while True:
        samples, _ = parse((await http.get("/metrics")).text)
        if not total(samples, "vllm:kv_cache_usage_perc") and not total(samples, "vllm:num_requests_running"):
            return samples
        assert time.monotonic() < deadline_s
        await asyncio.sleep(0.02)


def test_sums_equal_what_the_clients_were_told() -> None:
    with LiveServer(
        speedup_ratio=20.0,
        block_size=16,
        num_gpu_blocks_override=96,
        max_model_len=900,
        max_num_seqs=32,
        data_parallel_size=2,
    ) as server:
        clients, samples, left = asyncio.run(run_mix(server.url))
        assert server.call(lambda: len(tracker_of(server.state).live)) == 0
    told = clients.told
    # Some were done before the server heard that their client had left.
    done = [timeline for timeline in left if timeline["state"] == "completed"]
    for timeline in done:
        told += Counter(
            requests=1,
            prompt=timeline["prompt_tokens"],
            completion=timeline["output_tokens"],
            cached=timeline["cached_tokens"],
        )
    left = [timeline for timeline in left if timeline["state"] == "cancelled"]
    assert len(left) > 10
    begun = [timeline for timeline in left if timeline["first_token_ms"] is not None]

    left_tokens = sum(timeline["output_tokens"] for timeline in left)
    assert total(samples, "vllm:generation_tokens_total") == told["completion"] + left_tokens
    left_prompts = sum(timeline["prompt_tokens"] for timeline in begun)
    assert total(samples, "vllm:prompt_tokens_total") == told["prompt"] + left_prompts
    cached = told["cached"] + sum(timeline["cached_tokens"] for timeline in begun)
    assert cached > 0
    assert total(samples, "vllm:prompt_tokens_cached_total") == cached
    sources = {
        name: total(samples, "vllm:prompt_tokens_by_source_total", source=name)
        for name in ("local_compute", "local_cache_hit", "external_kv_transfer")
    }
    assert sources["local_cache_hit"] == cached
    assert sources["external_kv_transfer"] == 0
    assert sum(sources.values()) == told["prompt"] + left_prompts

    ended = total(samples, "vllm:request_success_total", finished_reason="length")
    assert ended == told["requests"]
    assert total(samples, "vllm:request_success_total", finished_reason="abort") == len(left)
    assert total(samples, "mocker:requests_client_gone_total") == len(left)
    assert total(samples, "vllm:request_success_total") == told["requests"] + len(left)
    assert clients.refused == 20

    for name, value in (("prompt", told["prompt"]), ("generation", told["completion"])):
        assert total(samples, f"vllm:request_{name}_tokens_sum") == value
        assert total(samples, f"vllm:request_{name}_tokens_count") == told["requests"]
    assert total(samples, "vllm:e2e_request_latency_seconds_count") == told["requests"]
    assert total(samples, "vllm:time_to_first_token_seconds_count") == told["requests"] + len(begun)
    assert total(samples, "vllm:request_params_n_sum") == told["requests"]
    assert total(samples, "vllm:request_params_n_count") == told["requests"] - 20  # prompts with n=2
    for name in ("running", "waiting", "waiting_by_reason"):
        assert total(samples, f"vllm:num_requests_{name}") == 0
