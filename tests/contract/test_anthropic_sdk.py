"""The official Anthropic SDK against a real server, with strict validation of answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic

from tests.harness.live_server import LiveServer

pytestmark = pytest.mark.e2e

HELLO: Any = [{"role": "user", "content": "Hello there"}]
WEATHER: Any = {
    "name": "get_weather",
    "description": "The weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module", params=["vllm", "openai"])
def server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    with LiveServer(
        speedup_ratio=1e6, block_size=16, wire_profile=request.param, api_key=("key-1", "key-2")
    ) as live:
        yield live


@pytest.fixture
def client(server: LiveServer) -> Iterator[Anthropic]:
    with sdk(server) as found:
        yield found


def sdk(server: LiveServer, api_key: str = "key-2") -> Anthropic:
    return Anthropic(base_url=server.url, api_key=api_key, max_retries=0, _strict_response_validation=True)


def test_whole_and_streamed_messages_agree(client: Anthropic) -> None:
    ask: Any = {"model": "mocker", "messages": HELLO, "max_tokens": 400, "extra_body": {"seed": 5}}
    whole = client.messages.create(**ask)
    with client.messages.stream(**ask) as stream:
        streamed = stream.get_final_message()
    assert whole.stop_reason == "end_turn"
    assert whole.content[0].type == "text"
    assert whole.content[0].text
    assert [block.to_dict() for block in streamed.content] == [block.to_dict() for block in whole.content]
    assert streamed.stop_reason == whole.stop_reason
    assert streamed.usage.output_tokens == whole.usage.output_tokens
    assert whole._request_id


def test_a_tool_loop_ends_with_text(client: Anthropic) -> None:
    ask: Any = {"model": "mocker", "max_tokens": 500, "tools": [WEATHER]}
    first = client.messages.create(**ask, messages=HELLO, tool_choice={"type": "any"})
    assert first.stop_reason == "tool_use"
    call = first.content[0]
    assert call.type == "tool_use"
    assert set(call.input) == {"city", "days"}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Rain."}
    messages: Any = [
        *HELLO,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = client.messages.create(**ask, messages=messages)
    assert second.stop_reason == "end_turn"
    assert second.content[0].type == "text"


def test_streamed_tool_input_agrees_with_the_whole(client: Anthropic) -> None:
    ask: Any = {"model": "mocker", "max_tokens": 500, "tools": [WEATHER], "messages": HELLO}
    ask |= {"tool_choice": {"type": "tool", "name": "get_weather"}, "extra_body": {"seed": 3}}
    whole = client.messages.create(**ask)
    with client.messages.stream(**ask) as stream:
        streamed = stream.get_final_message()
    assert streamed.content[0].type == whole.content[0].type == "tool_use"
    assert streamed.content[0].input == whole.content[0].input


def test_thinking_comes_first_and_has_a_signature(client: Anthropic) -> None:
    ask: Any = {"model": "mocker", "max_tokens": 3000, "messages": HELLO, "extra_body": {"seed": 1}}
    ask |= {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    whole = client.messages.create(**ask)
    assert [block.type for block in whole.content] == ["thinking", "text"]
    assert whole.content[0].type == "thinking"
    assert whole.content[0].thinking
    assert whole.content[0].signature
    assert whole.usage.output_tokens_details is not None
    assert 0 < whole.usage.output_tokens_details.thinking_tokens < whole.usage.output_tokens
    with client.messages.stream(**ask) as stream:
        streamed = stream.get_final_message()
    assert [block.to_dict() for block in streamed.content] == [block.to_dict() for block in whole.content]


def test_a_stop_sequence_ends_the_message(client: Anthropic) -> None:
    ask: Any = {
        "model": "mocker",
        "messages": HELLO,
        "max_tokens": 50,
        "extra_body": {"seed": 4, "ignore_eos": True},
    }
    text = client.messages.create(**ask).content[0]
    assert text.type == "text"
    word = text.text.split()[3]
    stopped = client.messages.create(**ask, stop_sequences=[word])
    assert stopped.stop_reason == "stop_sequence"
    assert stopped.stop_sequence == word
    assert all(block.type == "text" and word not in block.text for block in stopped.content)


def test_the_limit_is_max_tokens(client: Anthropic) -> None:
    message = client.messages.create(
        model="mocker", messages=HELLO, max_tokens=2, extra_body={"ignore_eos": True}
    )
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 2


def test_counted_tokens_are_those_of_the_usage(client: Anthropic) -> None:
    ask: Any = {"model": "mocker", "messages": HELLO, "system": "Be kind.", "tools": [WEATHER]}
    counted = client.messages.count_tokens(**ask)
    usage = client.messages.create(**ask, max_tokens=5).usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_errors_are_the_sdks_exceptions(client: Anthropic, server: LiveServer) -> None:
    with pytest.raises(anthropic.NotFoundError) as unknown:
        client.messages.create(model="none", messages=HELLO, max_tokens=5)
    assert unknown.value.body == {
        "type": "error",
        "error": {"type": "not_found_error", "message": "The model `none` does not exist."},
    }
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(model="mocker", messages=HELLO, max_tokens=0)
    with sdk(server, "wrong") as stranger, pytest.raises(anthropic.AuthenticationError) as refused:
        stranger.messages.create(model="mocker", messages=HELLO, max_tokens=5)
    assert isinstance(refused.value.body, dict)
    assert refused.value.body["error"]["type"] == "authentication_error"
