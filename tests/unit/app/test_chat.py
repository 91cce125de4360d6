from __future__ import annotations

from typing import Any

import pytest

from app.state import AppState
from tests.harness.asgi_stream import AsgiClient, Exchange
from tests.unit.app.serving_fixtures import chat, served

PATH = "/v1/chat/completions"


def answer(body: dict[str, Any], headers: dict[str, str] | None = None, **settings: Any) -> Exchange:
    async def test(client: AsgiClient, state: AppState) -> Exchange:
        return await client.post(PATH, body, headers)

    return served(test, **settings)


def chunks(exchange: Exchange) -> list[dict[str, Any]]:
    records = exchange.records()
    assert records[-1] == "[DONE]"
    assert records.count("[DONE]") == 1
    return records[:-1]


def choices(exchange: Exchange) -> list[dict[str, Any]]:
    return [choice for chunk in chunks(exchange) for choice in chunk["choices"]]


def test_a_whole_answer_has_exact_usage_and_length() -> None:
    got = answer(chat(max_tokens=7, ignore_eos=True))
    assert got.status == 200
    body = got.json()
    assert body["object"] == "chat.completion"
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["choices"][0]["message"]["role"] == "assistant"
    usage = body["usage"]
    assert usage["completion_tokens"] == 7
    assert usage["total_tokens"] == usage["prompt_tokens"] + 7
    assert usage["prompt_tokens_details"] == {"cached_tokens": 0}


def test_a_streamed_answer_is_one_record_a_token_with_the_role_first() -> None:
    got = answer(chat(max_tokens=5, ignore_eos=True, stream=True))
    assert got.headers["content-type"].startswith("text/event-stream")
    found = choices(got)
    assert found[0]["delta"] == {"role": "assistant", "content": ""}
    assert len(found) == 6
    assert all(choice["delta"]["content"] for choice in found[1:])
    assert [choice["finish_reason"] for choice in found] == [None] * 5 + ["length"]
    assert "usage" not in got.body.decode()


def test_all_chunks_share_id_created_model_and_object() -> None:
    got = answer(chat(max_tokens=4, stream=True, stream_options={"include_usage": True}))
    heads = {(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks(got)}
    assert len(heads) == 1
    assert next(iter(heads))[2:] == ("mocker", "chat.completion.chunk")


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"stop": ["a", "e"]},
        {"stop": " the", "include_stop_str_in_output": True},
        {"logprobs": True, "top_logprobs": 2},
        {"n": 3},
        {"return_token_ids": True},
        {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        {"min_tokens": 20, "stop": ["e"]},
    ],
    ids=str,
)
def test_streamed_and_whole_answers_of_one_seed_say_the_same(extra: dict[str, Any]) -> None:
    body = chat(max_tokens=40, seed=11, **extra)
    whole_body = {name: value for name, value in body.items() if name != "stream_options"}

    async def test(client: AsgiClient, state: AppState) -> tuple[Exchange, Exchange]:
        return await client.post(PATH, whole_body), await client.post(PATH, {**body, "stream": True})

    whole, streamed = served(test)
    assert whole.status == streamed.status == 200
    for choice in whole.json()["choices"]:
        index = choice["index"]
        assert choice["message"]["content"] == streamed.text(index)
        mine = [item for item in choices(streamed) if item["index"] == index]
        assert mine[-1]["finish_reason"] == choice["finish_reason"]
        assert mine[-1]["stop_reason"] == choice["stop_reason"]
        if "logprobs" in extra:
            entries = [entry for item in mine if item["logprobs"] for entry in item["logprobs"]["content"]]
            assert entries == choice["logprobs"]["content"]
            assert all(len(entry["top_logprobs"]) == 2 for entry in entries)
        if "return_token_ids" in extra:
            assert [token for item in mine for token in item.get("token_ids", [])] == choice["token_ids"]


def test_a_stop_string_never_shows_and_ends_the_engine_request() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        full = (await client.post(PATH, chat(max_tokens=60, seed=3, ignore_eos=True))).json()
        text = full["choices"][0]["message"]["content"]
        stop = text[30:36]
        cut = text.index(stop)
        got = await client.post(PATH, chat(max_tokens=60, seed=3, ignore_eos=True, stop=[stop], stream=True))
        assert got.text() == text[:cut]
        assert choices(got)[-1]["finish_reason"] == "stop"
        assert choices(got)[-1]["stop_reason"] == stop
        whole = (await client.post(PATH, chat(max_tokens=60, seed=3, ignore_eos=True, stop=stop))).json()
        assert whole["usage"]["completion_tokens"] < full["usage"]["completion_tokens"]

    served(test)


def test_a_stop_token_ends_the_answer() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        body = chat(max_tokens=30, seed=3, ignore_eos=True, return_token_ids=True)
        ids = (await client.post(PATH, body)).json()["choices"][0]["token_ids"]
        got = (await client.post(PATH, {**body, "stop_token_ids": [ids[10]]})).json()["choices"][0]
        assert got["finish_reason"] == "stop"
        assert got["stop_reason"] == ids[10]
        assert got["token_ids"] == ids[: ids.index(ids[10]) + 1]

    served(test)


def test_usage_comes_in_a_last_chunk_without_choices() -> None:
    got = answer(chat(max_tokens=3, ignore_eos=True, stream=True, stream_options={"include_usage": True}))
    found = chunks(got)
    assert found[-1]["choices"] == []
    assert found[-1]["usage"]["completion_tokens"] == 3
    assert all("usage" not in chunk for chunk in found[:-1])


def test_running_usage_counts_up() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    got = answer(chat(max_tokens=3, ignore_eos=True, stream=True, stream_options=options))
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks(got)]
    assert counts == [0, 1, 2, 3, 3]


def test_the_openai_profile_ends_with_an_empty_delta_and_null_usage() -> None:
    options = {"include_usage": True}
    got = answer(
        chat(max_tokens=2, ignore_eos=True, stream=True, stream_options=options), wire_profile="openai"
    )
    found = chunks(got)
    assert found[-2]["choices"][0]["delta"] == {}
    assert found[-2]["choices"][0]["finish_reason"] == "length"
    assert [chunk["usage"] for chunk in found[:-1]] == [None] * 4
    assert "stop_reason" not in got.body.decode()


def test_the_prompt_counts_once_for_several_choices() -> None:
    single = answer(chat(max_tokens=4, ignore_eos=True)).json()["usage"]
    several = answer(chat(max_tokens=4, ignore_eos=True, n=3)).json()
    assert several["usage"]["prompt_tokens"] == single["prompt_tokens"]
    assert several["usage"]["completion_tokens"] == 12
    assert [choice["index"] for choice in several["choices"]] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in several["choices"]}) == 3


def test_a_repeated_prompt_reports_cached_tokens() -> None:
    async def test(client: AsgiClient, state: AppState) -> int:
        body = chat("word " * 100, max_tokens=2)
        await client.post(PATH, body)
        cached: int = (await client.post(PATH, body)).json()["usage"]["prompt_tokens_details"][
            "cached_tokens"
        ]
        return cached

    cached = served(test)
    assert cached > 0
    assert cached % 16 == 0


def test_cached_tokens_can_be_left_out() -> None:
    usage = answer(chat(max_tokens=2), enable_prompt_tokens_details=False).json()["usage"]
    assert "prompt_tokens_details" not in usage


def test_the_clients_request_id_is_the_answers() -> None:
    got = answer(chat(max_tokens=1), {"X-Request-Id": "my-id"})
    assert got.headers["x-request-id"] == "my-id"
    assert got.json()["id"] == "chatcmpl-my-id"


def test_the_same_request_id_twice_at_once_serves_both() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        opened = [client.open("POST", PATH, chat(max_tokens=5), {"X-Request-Id": "same"}) for _ in range(5)]
        for exchange in opened:
            assert (await exchange.finished()).status == 200

    served(test)


def test_max_completion_tokens_goes_before_max_tokens() -> None:
    got = answer(chat(max_tokens=9, max_completion_tokens=2, ignore_eos=True))
    assert got.json()["usage"]["completion_tokens"] == 2


def test_an_answer_ends_by_itself_without_limits() -> None:
    got = answer(chat(seed=1))
    assert got.json()["choices"][0]["finish_reason"] == "stop"


def test_several_tokens_a_chunk_say_the_same_text() -> None:
    one = answer(chat(max_tokens=20, seed=5, ignore_eos=True, stream=True))
    five = answer(chat(max_tokens=20, seed=5, ignore_eos=True, stream=True), stream_interval=5)
    assert one.text() == five.text()
    # The role, the first token at once, then one record for five tokens.
    assert len(choices(five)) == 6


def test_echo_mode_gives_the_last_message_back() -> None:
    got = answer(chat("Say this again, please: ünïcödé 🎉", stream=True), content="echo")
    assert got.text() == "Say this again, please: ünïcödé 🎉"
