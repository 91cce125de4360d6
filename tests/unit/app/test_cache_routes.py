"""/reset_prefix_cache, /sleep, /wake_up and /is_sleeping: what they do to requests, cache and events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from app.factory import create_app
from app.settings import ServeSettings
from app.state import AppState
from mocker_core.events import BlocksCleared, BlocksStored
from tests.harness.asgi_stream import AsgiClient, Exchange, serving

PROMPT = list(range(40))


def run_app(scenario: Callable[[AsgiClient, AppState], Any], **settings: Any) -> Any:
    async def main() -> Any:
        app = create_app(ServeSettings(**{"speedup_ratio": 1000.0, "block_size": 16, **settings}))
        async with serving(app) as client:
            return await scenario(client, app.state.mocker)

    return asyncio.run(main())


def body(max_tokens: int = 1, **more: Any) -> dict[str, Any]:
    return {"model": "mocker", "prompt": PROMPT, "max_tokens": max_tokens, "ignore_eos": True, **more}


async def cached_tokens(client: AsgiClient) -> int:
    answer = (await client.post("/v1/completions", body())).json()
    tokens: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


def events_of(state: AppState) -> list[type]:
    ring = state.extras["event_streams"].kv
    return [type(event) for _, event in ring.read(0, 1000).items]


async def is_sleeping(client: AsgiClient) -> bool:
    answer: bool = (await client.get("/is_sleeping")).json()["is_sleeping"]
    return answer


async def ok(client: AsgiClient, path: str) -> None:
    answer = await client.request("POST", path)
    assert (answer.status, answer.body) == (200, b"")


async def a_moment() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not reached():  # noqa: ASYNC110 -- nobody tells of it
            await asyncio.sleep(0)


async def first_token(exchange: Exchange) -> None:
    await exchange.wait_for_bodies(1)


def test_reset_makes_the_next_request_compute_its_prompt_again() -> None:
    async def scenario(client: AsgiClient, state: AppState) -> None:
        assert await cached_tokens(client) == 0
        assert await cached_tokens(client) == 32
        await ok(client, "/reset_prefix_cache")
        assert await cached_tokens(client) == 0
        assert events_of(state) == [BlocksStored, BlocksCleared, BlocksStored]

    run_app(scenario)


def test_reset_while_a_request_runs_is_answered_200_and_changes_nothing() -> None:
    async def scenario(client: AsgiClient, state: AppState) -> None:
        running = client.open("POST", "/v1/completions", body(100_000, stream=True))
        await first_token(running)
        await ok(client, "/reset_prefix_cache")
        assert BlocksCleared not in events_of(state)
        await ok(client, "/reset_prefix_cache?reset_running_requests=true")
        # In mid-pass the answer comes at once and its events at the end of the pass.
        await until(lambda: BlocksCleared in events_of(state))
        await until(lambda: state.engine.metrics(0).vllm_preemptions_total == 1)
        assert not running.complete
        running.hang_up()

    run_app(scenario)


@pytest.mark.parametrize("level", [1, 2])
def test_sleep_drops_the_cache_and_requests_wait_until_the_engine_wakes(level: int) -> None:
    async def scenario(client: AsgiClient, state: AppState) -> None:
        assert not await is_sleeping(client)
        await cached_tokens(client)
        await ok(client, f"/sleep?level={level}")
        assert await is_sleeping(client)
        assert events_of(state)[-1] is BlocksCleared
        waiting = client.open("POST", "/v1/completions", body())
        await a_moment()
        assert waiting.status is None
        assert (await client.get("/health")).status == 200
        await ok(client, "/wake_up")
        assert not await is_sleeping(client)
        answer = (await waiting.finished()).json()
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0

    run_app(scenario)


def test_level_0_stops_scheduling_and_keeps_the_cache() -> None:
    async def scenario(client: AsgiClient, state: AppState) -> None:
        await cached_tokens(client)
        await ok(client, "/sleep?level=0")
        assert await is_sleeping(client)
        waiting = client.open("POST", "/v1/completions", body())
        await a_moment()
        assert waiting.status is None
        await ok(client, "/wake_up?tags=scheduling")
        answer = (await waiting.finished()).json()
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 32
        assert BlocksCleared not in events_of(state)

    run_app(scenario)


@pytest.mark.parametrize("stream", [True, False])
def test_sleep_ends_running_requests_with_finish_reason_abort(stream: bool) -> None:
    async def scenario(client: AsgiClient, state: AppState) -> None:
        running = client.open("POST", "/v1/completions", body(100_000, stream=stream))
        await a_moment()
        await ok(client, "/sleep")
        await running.finished()
        assert running.status == 200
        last = (
            [record for record in running.records() if record != "[DONE]"][-1] if stream else running.json()
        )
        assert last["choices"][0]["finish_reason"] == "abort"
        if stream:
            assert running.records()[-1] == "[DONE]"
        else:
            tokens = last["usage"]["completion_tokens"]
            assert 0 < tokens < 100_000
        assert state.load == 0
        await until(lambda: state.engine.metrics(0).active_decode_blocks == 0)
        await ok(client, "/wake_up")
        assert (await client.post("/v1/completions", body())).status == 200

    run_app(scenario)


def test_sleep_before_the_first_token_ends_a_chat_stream_with_role_and_reason() -> None:
    async def scenario(client: AsgiClient, state: AppState) -> None:
        await ok(client, "/sleep?level=0")
        chat = {"model": "mocker", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        waiting = client.open("POST", "/v1/chat/completions", chat)
        await a_moment()
        await ok(client, "/sleep?level=1")
        records = (await waiting.finished()).records()
        assert records[0]["choices"][0]["delta"]["role"] == "assistant"
        assert records[-2]["choices"][0]["finish_reason"] == "abort"
        assert records[-1] == "[DONE]"

    run_app(scenario)


def test_wait_lets_running_requests_end_before_the_engine_sleeps() -> None:
    async def scenario(client: AsgiClient, state: AppState) -> None:
        running = client.open("POST", "/v1/completions", body(100, stream=True))
        await first_token(running)
        sleeping = client.open("POST", "/sleep?mode=wait")
        await a_moment()
        assert await is_sleeping(client)
        assert (await sleeping.finished()).status == 200
        await running.finished()
        finish = [record["choices"][0]["finish_reason"] for record in running.records()[:-1]]
        assert finish.count("length") == 1
        assert events_of(state)[-1] is BlocksCleared

    run_app(scenario, speedup_ratio=10.0)


def test_keep_lets_running_requests_go_on_after_the_sleep_with_every_token() -> None:
    async def scenario(client: AsgiClient, state: AppState) -> None:
        running = client.open("POST", "/v1/completions", body(500, stream=True))
        await first_token(running)
        await ok(client, "/sleep?mode=keep")
        await a_moment()
        so_far = len(running.bodies)
        await a_moment()
        assert len(running.bodies) == so_far
        assert not running.complete
        await ok(client, "/wake_up")
        await running.finished()
        texts = [record for record in running.records()[:-1] if record["choices"][0]["text"]]
        assert len(texts) == 500

    run_app(scenario, speedup_ratio=10.0)


def test_engine_wakes_only_when_every_part_is_awake() -> None:
    async def scenario(client: AsgiClient, state: AppState) -> None:
        await ok(client, "/sleep?level=2")
        await ok(client, "/wake_up?tags=weights")
        assert await is_sleeping(client)
        await ok(client, "/wake_up?tags=kv_cache")
        assert not await is_sleeping(client)
        await ok(client, "/wake_up")
        await ok(client, "/sleep?level=2")
        await ok(client, "/wake_up?tags=weights&tags=kv_cache")
        assert not await is_sleeping(client)

    run_app(scenario)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/sleep?level=3", "level"),
        ("/sleep?level=deep", "level"),
        ("/sleep?mode=nap", "'nap'"),
        ("/wake_up?tags=gpu", "'gpu'"),
    ],
)
def test_wrong_parameters_are_a_400_that_names_them(path: str, said: str) -> None:
    async def scenario(client: AsgiClient, state: AppState) -> Exchange:
        answer = await client.request("POST", path)
        assert not await is_sleeping(client)
        return answer

    answer = run_app(scenario)
    assert answer.status == 400
    assert said in answer.json()["error"]["message"]


def test_every_rank_is_reset() -> None:
    async def scenario(client: AsgiClient, state: AppState) -> list[tuple[int, type]]:
        await ok(client, "/reset_prefix_cache")
        ring = state.extras["event_streams"].kv
        return [(rank, type(event)) for rank, event in ring.read(0, 10).items]

    cleared = run_app(scenario, data_parallel_size=2)
    assert cleared == [(0, BlocksCleared), (1, BlocksCleared)]


@pytest.mark.parametrize("path", ["/reset_mm_cache", "/reset_encoder_cache"])
def test_caches_that_the_mocker_does_not_have_can_be_reset(path: str) -> None:
    async def scenario(client: AsgiClient, state: AppState) -> None:
        await ok(client, path)

    run_app(scenario)
