"""The official OpenAI SDK against a real server, with its strict validation of answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from tests.harness.live_server import LiveServer

pytestmark = pytest.mark.e2e

MESSAGES: Any = [
    {"role": "system", "content": "Be short."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "Tell me something"}, {"type": "text", "text": " nice."}],
    },
    {"role": "assistant", "content": "Something nice."},
    {"role": "user", "content": "More, please."},
]


@pytest.fixture(scope="module", params=["vllm", "openai"])
def server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    with LiveServer(
        speedup_ratio=1e6,
        block_size=16,
        wire_profile=request.param,
        served_model_name=("first", "second"),
        api_key=("key-1", "key-2"),
    ) as live:
        yield live


@pytest.fixture
def client(server: LiveServer) -> Iterator[OpenAI]:
    with OpenAI(
        base_url=f"{server.url}/v1", api_key="key-2", max_retries=0, _strict_response_validation=True
    ) as sdk:
        yield sdk


def test_a_chat_whole_and_streamed_say_the_same(client: OpenAI) -> None:
    ask: Any = {"model": "first", "messages": MESSAGES, "seed": 7, "max_tokens": 30}
    whole = client.chat.completions.create(**ask)
    stream = client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert text
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert chunks[-1].usage.prompt_tokens == whole.usage.prompt_tokens
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert whole._request_id


def test_the_streaming_helper_accumulates_the_answer(client: OpenAI) -> None:
    with client.chat.completions.stream(model="first", messages=MESSAGES, seed=1) as stream:
        final = stream.get_final_completion()
    whole = client.chat.completions.create(model="first", messages=MESSAGES, seed=1)
    assert final.choices[0].message.content == whole.choices[0].message.content
    assert final.choices[0].finish_reason == whole.choices[0].finish_reason


def test_two_choices_have_their_own_texts(client: OpenAI) -> None:
    ask: Any = {"model": "second", "messages": MESSAGES, "n": 2, "seed": 3, "max_tokens": 15}
    whole = client.chat.completions.create(**ask)
    texts = ["", ""]
    for chunk in client.chat.completions.create(**ask, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == [choice.message.content for choice in whole.choices]
    assert texts[0] != texts[1]


def test_a_stop_string_ends_the_answer_and_is_not_in_it(client: OpenAI) -> None:
    ask: Any = {
        "model": "first",
        "messages": MESSAGES,
        "seed": 5,
        "max_tokens": 60,
        "extra_body": {"ignore_eos": True},
    }
    full = client.chat.completions.create(**ask).choices[0].message.content
    assert full
    stop = full[20:24]
    got = client.chat.completions.create(**ask, stop=[stop]).choices[0]
    assert got.message.content == full[: full.index(stop)]
    assert got.finish_reason == "stop"


def test_logprobs_are_typed(client: OpenAI) -> None:
    got = client.chat.completions.create(
        model="first", messages=MESSAGES, max_tokens=5, logprobs=True, top_logprobs=3
    ).choices[0]
    assert got.logprobs is not None
    assert got.logprobs.content is not None
    assert "".join(entry.token for entry in got.logprobs.content) == got.message.content
    assert all(len(entry.top_logprobs) == 3 for entry in got.logprobs.content)


def test_every_parameter_of_the_sdk_is_accepted(client: OpenAI) -> None:
    got = client.chat.completions.create(
        model="first",
        messages=MESSAGES,
        frequency_penalty=0.5,
        logit_bias={"50256": -100},
        max_completion_tokens=3,
        metadata={"a": "b"},
        modalities=["text"],
        n=1,
        parallel_tool_calls=True,
        prediction={"type": "content", "content": "x"},
        presence_penalty=0.5,
        prompt_cache_key="k",
        reasoning_effort="low",
        response_format={"type": "text"},
        safety_identifier="s",
        seed=1,
        service_tier="auto",
        stop=["zzzzzz"],
        store=False,
        temperature=0.7,
        top_p=0.9,
        user="me",
        verbosity="low",
    )
    assert got.choices[0].finish_reason == "length"


def test_completions_are_typed_whole_and_readable_streamed(server: LiveServer, client: OpenAI) -> None:
    ask: Any = {"model": "first", "prompt": ["One", "Two"], "seed": 2, "max_tokens": 9, "n": 2}
    whole = client.completions.create(**ask, best_of=2, user="me", suffix=None)
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    texts = [""] * 4
    with OpenAI(base_url=f"{server.url}/v1", api_key="key-1") as lenient:
        for chunk in lenient.completions.create(**ask, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]


def test_models_are_typed(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["first", "second"]
    assert client.models.retrieve("second").owned_by == "vllm"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("third")
    with pytest.raises(openai.PermissionDeniedError):
        client.models.delete("first")


def test_errors_become_the_sdks_exceptions(server: LiveServer, client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="third", messages=MESSAGES)
    assert missing.value.param == "model"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="first", messages=MESSAGES, max_tokens=0)
    assert wrong.value.param == "max_tokens"
    stranger = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()


def test_the_async_client_serves_many_at_once(server: LiveServer) -> None:
    async def main() -> None:
        async with AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="key-1", _strict_response_validation=True
        ) as sdk:

            async def one(seed: int) -> tuple[str, str]:
                ask: Any = {"model": "first", "messages": MESSAGES, "seed": seed, "max_tokens": 20}
                whole = await sdk.chat.completions.create(**ask)
                pieces = [
                    chunk.choices[0].delta.content or ""
                    async for chunk in await sdk.chat.completions.create(**ask, stream=True)
                ]
                return whole.choices[0].message.content or "", "".join(pieces)

            found = await asyncio.gather(*(one(seed) for seed in range(10)))
            assert all(whole == streamed for whole, streamed in found)
            assert len({whole for whole, _ in found}) == 10

    asyncio.run(main())


class City(BaseModel):
    """What the SDK makes a strict schema of."""

    name: str
    population: int
    twins: list[str]
    kind: Literal["town", "village"]


def test_parse_gives_an_instance_of_the_pydantic_model(client: OpenAI) -> None:
    got = client.chat.completions.parse(model="first", messages=MESSAGES, response_format=City, seed=1)
    assert isinstance(got.choices[0].message.parsed, City)
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            model="first", messages=MESSAGES, response_format=City, seed=1, max_tokens=2
        )


def test_the_stream_helper_parses_a_pydantic_answer(client: OpenAI) -> None:
    ask: Any = {"model": "first", "messages": MESSAGES, "response_format": City, "seed": 4}
    with client.chat.completions.stream(**ask) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert isinstance(final.choices[0].message.parsed, City)
    whole = client.chat.completions.parse(**ask)
    assert final.choices[0].message.parsed == whole.choices[0].message.parsed


def test_tools_of_pydantic_models_are_called_and_parsed(client: OpenAI) -> None:
    ask: Any = {"model": "first", "messages": MESSAGES, "tools": [openai.pydantic_function_tool(City)]}
    for seed in range(5):
        whole = client.chat.completions.parse(**ask, seed=seed).choices[0]
        assert whole.finish_reason == "tool_calls"
        calls = whole.message.tool_calls
        assert calls
        assert isinstance(calls[0].function.parsed_arguments, City)
        with client.chat.completions.stream(**ask, seed=seed) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion().choices[0]
        assert {"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= kinds
        assert final.message.tool_calls
        assert final.message.tool_calls[0].function == calls[0].function
        assert final.message.tool_calls[0].id == calls[0].id


def test_an_agent_loop_ends(client: OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "Which city?"}]
    tools: Any = [openai.pydantic_function_tool(City)]
    for _ in range(5):
        got = client.chat.completions.create(model="first", messages=messages, tools=tools).choices[0]
        if got.finish_reason != "tool_calls":
            break
        messages.append(got.message)
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": "done"}
            for call in got.message.tool_calls or []
        ]
    assert got.finish_reason == "stop"
    assert len(messages) == 3


def test_deprecated_functions_are_answered_in_their_own_shape(client: OpenAI) -> None:
    ask: Any = {
        "model": "first",
        "messages": MESSAGES,
        "functions": [{"name": "f", "parameters": {"type": "object", "properties": {}}}],
    }
    got = client.chat.completions.create(**ask).choices[0]
    assert got.finish_reason == "function_call"
    assert got.message.function_call is not None
    assert got.message.function_call.name == "f"


def test_embeddings_are_typed_and_base64_is_decoded_by_the_sdk(server: LiveServer, client: OpenAI) -> None:
    floats = client.embeddings.create(model="first", input="red apples", encoding_format="float")
    # By default the SDK asks for base64, which its own strict check would refuse before it is decoded.
    with OpenAI(base_url=f"{server.url}/v1", api_key="key-1") as lenient:
        by_default = lenient.embeddings.create(model="first", input=["red apples", "the sea"])
        short = lenient.embeddings.create(model="first", input=[1, 2], dimensions=9)
    assert len(by_default.data[0].embedding) == 1536
    assert by_default.data[0].embedding == pytest.approx(floats.data[0].embedding, rel=1e-6)
    assert len(short.data[0].embedding) == 9


def test_moderations_are_typed(client: OpenAI) -> None:
    got = client.moderations.create(input=["I love you.", "I will kill you."])
    assert [result.flagged for result in got.results] == [False, True]
    assert got.results[1].categories.violence
