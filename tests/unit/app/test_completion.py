from __future__ import annotations

from typing import Any

import pytest

from app.state import AppState
from tests.harness.asgi_stream import AsgiClient, Exchange
from tests.unit.app.serving_fixtures import served

PATH = "/v1/completions"


def answer(body: dict[str, Any], **settings: Any) -> Exchange:
    async def test(client: AsgiClient, state: AppState) -> Exchange:
        return await client.post(PATH, body)

    return served(test, **settings)


def test_the_default_is_sixteen_tokens() -> None:
    body = answer({"prompt": "Once upon", "ignore_eos": True}).json()
    assert body["object"] == "text_completion"
    assert body["usage"]["completion_tokens"] == 16
    assert body["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize(
    ("prompt", "choices", "prompt_tokens"),
    [([1, 2, 3], 1, 3), ([[1, 2], [3, 4, 5]], 2, 5), (["one two", "three"], 2, None), ("one two", 1, None)],
    ids=["ids", "lists of ids", "texts", "text"],
)
def test_each_form_of_prompt_is_served(prompt: Any, choices: int, prompt_tokens: int | None) -> None:
    body = answer({"prompt": prompt, "max_tokens": 3, "ignore_eos": True}).json()
    assert [choice["index"] for choice in body["choices"]] == list(range(choices))
    assert body["usage"]["completion_tokens"] == 3 * choices
    if prompt_tokens is not None:
        assert body["usage"]["prompt_tokens"] == prompt_tokens


def test_choices_are_prompts_times_n_and_each_prompt_counts_once() -> None:
    body = answer({"prompt": [[1, 2, 3], [4, 5]], "n": 2, "max_tokens": 2, "ignore_eos": True}).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2, 3]
    assert body["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 8,
        "total_tokens": 13,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def test_best_of_shows_n_and_counts_all() -> None:
    body = answer({"prompt": "x", "n": 1, "best_of": 3, "max_tokens": 4, "ignore_eos": True}).json()
    assert len(body["choices"]) == 1
    assert body["choices"][0]["index"] == 0
    assert body["usage"]["completion_tokens"] == 12


@pytest.mark.parametrize("stream", [False, True])
def test_echo_puts_the_prompt_before_the_answer(stream: bool) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        body = {"prompt": "Once upon", "max_tokens": 5, "seed": 2, "stream": stream}
        plain = await client.post(PATH, body)
        echoed = await client.post(PATH, {**body, "echo": True})
        texts = [item.text() if stream else item.json()["choices"][0]["text"] for item in (plain, echoed)]
        assert texts[1] == "Once upon" + texts[0]

    served(test)


@pytest.mark.parametrize("stream", [False, True])
def test_echo_without_tokens_gives_the_prompt_alone(stream: bool) -> None:
    got = answer({"prompt": "Once upon", "max_tokens": 0, "echo": True, "stream": stream})
    assert got.status == 200
    assert (got.text() if stream else got.json()["choices"][0]["text"]) == "Once upon"
    if not stream:
        assert got.json()["usage"]["completion_tokens"] == 0


def test_a_suffix_counts_as_prompt() -> None:
    without = answer({"prompt": "def f():", "max_tokens": 2}).json()["usage"]["prompt_tokens"]
    body = answer({"prompt": "def f():", "suffix": "return x", "max_tokens": 2}).json()
    assert body["usage"]["prompt_tokens"] > without
    assert "return x" not in body["choices"][0]["text"]


def test_logprobs_have_the_completions_shape() -> None:
    body = answer({"prompt": "x", "max_tokens": 6, "logprobs": 2, "ignore_eos": True}).json()
    choice = body["choices"][0]
    found = choice["logprobs"]
    assert "".join(found["tokens"]) == choice["text"]
    assert len(found["token_logprobs"]) == len(found["top_logprobs"]) == len(found["text_offset"]) == 6
    assert all(value <= 0 for value in found["token_logprobs"])
    assert [
        choice["text"][at : at + len(piece)]
        for at, piece in zip(found["text_offset"], found["tokens"], strict=True)
    ] == found["tokens"]


def test_streamed_logprobs_equal_the_whole_ones() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        body = {"prompt": "abc", "max_tokens": 6, "logprobs": 1, "seed": 4, "echo": True}
        whole = (await client.post(PATH, body)).json()["choices"][0]
        streamed = await client.post(PATH, {**body, "stream": True})
        parts = [record["choices"][0]["logprobs"] for record in streamed.records()[:-1]]
        for name in ("tokens", "token_logprobs", "text_offset"):
            assert [value for part in parts if part for value in part[name]] == whole["logprobs"][name]
        assert whole["logprobs"]["token_logprobs"][0] is None

    served(test)


def test_streamed_prompts_do_not_mix() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        body = {"prompt": ["first", "second"], "n": 2, "max_tokens": 12, "seed": 9}
        whole = (await client.post(PATH, body)).json()
        streamed = await client.post(PATH, {**body, "stream": True})
        for choice in whole["choices"]:
            assert streamed.text(choice["index"]) == choice["text"]
        finishes = [
            choice["finish_reason"]
            for record in streamed.records()[:-1]
            for choice in record["choices"]
            if choice["finish_reason"]
        ]
        assert len(finishes) == 4

    served(test)


def test_any_uint32_is_a_token_id() -> None:
    assert answer({"prompt": [0, 2**32 - 1, 4_000_000_000], "max_tokens": 1, "echo": True}).status == 200


def test_truncation_keeps_the_last_tokens() -> None:
    body = answer({"prompt": list(range(50)), "truncate_prompt_tokens": 7, "max_tokens": 1}).json()
    assert body["usage"]["prompt_tokens"] == 7
