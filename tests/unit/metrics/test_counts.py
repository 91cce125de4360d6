from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.state import AppState
from tests.harness.asgi_stream import AsgiClient, serving
from tests.harness.scrape import Samples, parse, total
from tests.unit.app.serving_fixtures import chat, make_app, served


async def scrape(client: AsgiClient) -> Samples:
    return parse((await client.get("/metrics")).body.decode())[0]


@pytest.mark.parametrize(("level", "state"), [(0, None), (1, "weights_offloaded"), (2, "discard_all")])
def test_sleep_state_follows_sleep_and_wake_up(level: int, state: str | None) -> None:
    async def test(client: AsgiClient, app: AppState) -> None:
        for asleep in (False, True, False):
            if asleep:
                await client.post(f"/sleep?level={level}", b"")
            samples = await scrape(client)
            states = ("awake", "weights_offloaded", "discard_all")
            figures = {name: total(samples, "vllm:engine_sleep_state", sleep_state=name) for name in states}
            wanted = state if asleep else "awake"
            assert figures == {name: float(name == wanted) for name in states}
            if asleep:
                await client.post("/wake_up", b"")

    served(test)


def test_queue_is_part_of_ttft() -> None:
    async def test(client: AsgiClient, app: AppState) -> Samples:
        first = client.open("POST", "/v1/chat/completions", chat(max_tokens=40, ignore_eos=True))
        second = client.open("POST", "/v1/chat/completions", chat(max_tokens=2, ignore_eos=True))
        await first.finished()
        await second.finished()
        return await scrape(client)

    # One at a time: the second waits for all of the first.
    samples = served(test, max_num_seqs=1, speedup_ratio=50.0)
    ttft_s = total(samples, "vllm:time_to_first_token_seconds_sum")
    queue_s = total(samples, "vllm:request_queue_time_seconds_sum")
    prefill_s = total(samples, "vllm:request_prefill_time_seconds_sum")
    decode_s = total(samples, "vllm:request_decode_time_seconds_sum")
    assert ttft_s == pytest.approx(queue_s + prefill_s, abs=1e-5)
    assert queue_s > decode_s * 0.9
    assert total(samples, "vllm:e2e_request_latency_seconds_sum") == pytest.approx(
        ttft_s + decode_s, abs=1e-5
    )


def test_generated_tokens_count_while_the_request_still_runs() -> None:
    async def test(client: AsgiClient, app: AppState) -> None:
        body = chat(max_tokens=100_000, ignore_eos=True, stream=True)
        stream = client.open("POST", "/v1/chat/completions", body)
        await stream.wait_for_bodies(10)
        samples = await scrape(client)
        assert total(samples, "vllm:generation_tokens_total") >= 9
        assert total(samples, "vllm:num_requests_running") == 1
        assert total(samples, "vllm:request_generation_tokens_count") == 0
        assert total(samples, "mocker:kv_blocks", state="active") > 0
        assert total(samples, "mocker:kv_blocks") == 16384
        stream.hang_up()
        await stream.finished()
        later = await scrape(client)
        assert total(later, "vllm:generation_tokens_total") >= total(samples, "vllm:generation_tokens_total")
        assert total(later, "vllm:request_success_total", finished_reason="abort") == 1

    served(test, speedup_ratio=100.0)


def test_token_sums_of_passes_are_what_was_computed_and_generated() -> None:
    async def test(client: AsgiClient, app: AppState) -> tuple[Samples, Any]:
        answer = await client.post(
            "/v1/chat/completions", chat("word " * 300, max_tokens=20, ignore_eos=True)
        )
        return await scrape(client), answer.json()["usage"]

    # The prompt takes several passes.
    samples, usage = served(test, max_num_batched_tokens=64)
    assert usage["prompt_tokens"] > 128
    tokens = usage["prompt_tokens"] + usage["completion_tokens"]
    assert total(samples, "vllm:iteration_tokens_total_sum") == tokens
    assert total(samples, "vllm:inter_token_latency_seconds_count") == usage["completion_tokens"] - 1


def test_no_cache_no_queries() -> None:
    async def test(client: AsgiClient, app: AppState) -> Samples:
        await client.post("/v1/chat/completions", chat(max_tokens=2))
        return await scrape(client)

    samples = served(test, enable_prefix_caching=False)
    assert total(samples, "vllm:prefix_cache_queries_total") == 0
    assert total(samples, "vllm:prompt_tokens_total") > 0


def test_scrape_needs_no_key() -> None:
    async def test(client: AsgiClient, app: AppState) -> int | None:
        return (await client.get("/metrics")).status

    assert served(test, api_key=("k",)) == 200


def test_offload_tiers_are_shown_where_there_are_any() -> None:
    async def test(client: AsgiClient, app: AppState) -> Samples:
        await client.post("/v1/chat/completions", chat(max_tokens=2))
        return await scrape(client)

    samples = served(test, num_g2_blocks=32, num_g3_blocks=64, kv_bytes_per_token=1000)
    assert total(samples, "mocker:offload_blocks_capacity", tier="host") == 32
    assert total(samples, "mocker:offload_blocks_capacity", tier="disk") == 64
    assert total(samples, "mocker:offload_bytes_total") >= 0
    assert all(not name.startswith("mocker:offload") for name, _ in served(test))


def test_figures_are_given_while_the_engine_starts_and_after_it_died() -> None:
    async def states(client: AsgiClient, app: AppState) -> dict[str, float]:
        samples = await scrape(client)
        names = ("starting", "ready", "dead")
        assert (await client.get("/admin/events/dashboard?limit=1")).status == 200
        return {name: total(samples, "mocker:engine_state", state=name) for name in names}

    async def main() -> None:
        app = make_app(startup_time=60.0)
        state: AppState = app.state.mocker
        async with serving(app) as client:
            assert await states(client, state) == {"starting": 1, "ready": 0, "dead": 0}
            await state.engine.stop()
            assert await states(client, state) == {"starting": 0, "ready": 0, "dead": 1}

    asyncio.run(main())


def test_adapters_in_use_are_labels_of_lora_info() -> None:
    async def test(client: AsgiClient, app: AppState) -> list[dict[str, str]]:
        app.models.add_adapter("sql", "/adapters/sql")
        body = chat(max_tokens=400, ignore_eos=True, stream=True, model="sql")
        streams = [client.open("POST", "/v1/chat/completions", body) for _ in range(2)]
        await streams[0].wait_for_bodies(3)
        samples = await scrape(client)
        for stream in streams:
            stream.hang_up()
            await stream.finished()
        return [dict(labels) for name, labels in samples if name == "vllm:lora_requests_info"]

    (labels,) = served(test, enable_lora=True, max_loras=2, max_num_seqs=1, speedup_ratio=1.0)
    assert labels == {"max_lora": "2", "running_lora_adapters": "sql", "waiting_lora_adapters": "sql"}
