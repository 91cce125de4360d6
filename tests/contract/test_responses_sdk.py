"""The official OpenAI SDK's Responses client against a real server, with strict validation of answers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from tests.harness.live_server import LiveServer

pytestmark = pytest.mark.e2e

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}


class Person(BaseModel):
    """A structured answer."""

    name: str
    age: int
    tags: list[str]


@pytest.fixture(scope="module", params=["vllm", "openai"])
def server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    with LiveServer(speedup_ratio=1e6, block_size=16, wire_profile=request.param) as live:
        yield live


@pytest.fixture(scope="module")
def thinking_server() -> Iterator[LiveServer]:
    with LiveServer(speedup_ratio=1e6, block_size=16, reasoning={"thinking_ratio": 0.5}) as live:
        yield live


@pytest.fixture
def client(server: LiveServer) -> Iterator[OpenAI]:
    with sdk(server) as found:
        yield found


@pytest.fixture
def thinking(thinking_server: LiveServer) -> Iterator[OpenAI]:
    with sdk(thinking_server) as found:
        yield found


def sdk(server: LiveServer) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0, _strict_response_validation=True)


def test_whole_and_streamed_responses_agree(client: OpenAI) -> None:
    ask: Any = {"model": "mocker", "input": "Hello", "max_output_tokens": 400, "extra_body": {"seed": 5}}
    whole = client.responses.create(**ask)
    events = list(client.responses.create(**ask, stream=True))
    last = events[-1]
    assert whole.status == "completed"
    assert whole.output_text
    assert last.type == "response.completed"
    assert last.response.output_text == whole.output_text
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert last.response.usage is not None
    assert whole.usage is not None
    assert last.response.usage.output_tokens == whole.usage.output_tokens
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens


def test_the_streaming_helper_parses_a_schema(client: OpenAI) -> None:
    with client.responses.stream(model="mocker", input="Who?", text_format=Person) as stream:
        final = stream.get_final_response()
    assert isinstance(final.output_parsed, Person)
    parsed = client.responses.parse(model="mocker", input="Who?", text_format=Person)
    assert isinstance(parsed.output_parsed, Person)


def test_a_tool_loop_ends_with_text(client: OpenAI) -> None:
    ask: Any = {"model": "mocker", "tools": [WEATHER], "tool_choice": "required"}
    first = client.responses.create(**ask, input="Weather in Paris?")
    call = first.output[0]
    assert call.type == "function_call"
    arguments = json.loads(call.arguments)
    assert set(arguments) == {"city", "days"}
    assert 1 <= arguments["days"] <= 7
    second = client.responses.create(
        model="mocker",
        tools=[WEATHER],
        previous_response_id=first.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}],
    )
    assert second.output[0].type == "message"
    assert second.output_text
    items = list(client.responses.input_items.list(second.id, order="asc"))
    assert [item.type for item in items] == ["message", "function_call", "function_call_output"]


def test_streamed_calls_agree_with_their_item(client: OpenAI) -> None:
    stream = client.responses.create(
        model="mocker", input="Weather?", tools=[WEATHER], tool_choice="required", stream=True
    )
    pieces, done = "", ""
    for event in stream:
        if event.type == "response.function_call_arguments.delta":
            pieces += event.delta
        elif event.type == "response.function_call_arguments.done":
            done = event.arguments
        elif event.type == "response.completed":
            call = event.response.output[0]
            assert call.type == "function_call"
            assert call.arguments == pieces == done
    assert done


def test_the_limit_makes_a_response_incomplete(client: OpenAI) -> None:
    ask: Any = {"model": "mocker", "input": "Hi", "max_output_tokens": 3}
    whole = client.responses.create(**ask, extra_body={"ignore_eos": True})
    assert whole.status == "incomplete"
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert whole.usage is not None
    assert whole.usage.output_tokens == 3
    events = list(client.responses.create(**ask, extra_body={"ignore_eos": True}, stream=True))
    assert events[-1].type == "response.incomplete"


def test_kept_responses_are_retrieved_and_deleted(client: OpenAI) -> None:
    made = client.responses.create(model="mocker", input="Hi", metadata={"a": "b"})
    assert client.responses.retrieve(made.id).output_text == made.output_text
    assert client.responses.retrieve(made.id).metadata == {"a": "b"}
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)


def test_background_responses_are_polled_and_followed(client: OpenAI) -> None:
    made = client.responses.create(model="mocker", input="Hi", background=True)
    assert made.status == "queued"
    until = time.monotonic() + 20
    while (now := client.responses.retrieve(made.id)).status in ("queued", "in_progress"):
        assert time.monotonic() < until
    assert now.status == "completed"
    events = list(client.responses.retrieve(made.id, stream=True))
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    rest = list(client.responses.retrieve(made.id, stream=True, starting_after=4))
    assert [event.sequence_number for event in rest] == list(range(5, len(events)))
    assert rest == events[5:]
    assert client.responses.cancel(made.id).status == "completed"


def test_input_tokens_are_those_of_the_usage(client: OpenAI) -> None:
    ask: Any = {"model": "mocker", "input": "How many?", "instructions": "Count.", "tools": [WEATHER]}
    counted = client.responses.input_tokens.count(**ask)
    made = client.responses.create(**ask)
    assert made.usage is not None
    assert counted.input_tokens == made.usage.input_tokens


def test_reasoning_comes_as_an_item_of_its_own(thinking: OpenAI) -> None:
    ask: Any = {"model": "mocker", "input": "Think", "reasoning": {"effort": "high", "summary": "auto"}}
    ask |= {"include": ["reasoning.encrypted_content"], "extra_body": {"seed": 2}}
    whole = thinking.responses.create(**ask)
    assert [item.type for item in whole.output] == ["reasoning", "message"]
    item = whole.output[0]
    assert item.type == "reasoning"
    assert item.content
    assert item.summary
    assert item.encrypted_content
    assert whole.usage is not None
    assert 0 < whole.usage.output_tokens_details.reasoning_tokens < whole.usage.output_tokens
    events = list(thinking.responses.create(**ask, stream=True))
    said = "".join(event.delta for event in events if event.type == "response.reasoning_text.delta")
    assert said == item.content[0].text


def test_logprobs_come_with_include(client: OpenAI) -> None:
    ask: Any = {"model": "mocker", "input": "Hi", "max_output_tokens": 4, "top_logprobs": 2}
    ask |= {"include": ["message.output_text.logprobs"]}
    made = client.responses.create(**ask)
    part = made.output[0].content[0]
    assert part.type == "output_text"
    assert part.logprobs
    assert all(len(entry.top_logprobs) == 2 for entry in part.logprobs)


def test_errors_are_the_sdks_exceptions(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.responses.create(model="mocker", input="Hi", previous_response_id="resp_none")
    assert unknown.value.param == "previous_response_id"
    with pytest.raises(openai.BadRequestError) as bad:
        client.responses.create(model="mocker", input="Hi", max_output_tokens=0)
    assert bad.value.param == "max_output_tokens"
