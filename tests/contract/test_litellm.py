"""litellm against a real server; skipped where it is not installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.live_server import LiveServer

# Else its import asks the network for a table of prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
litellm = pytest.importorskip("litellm", reason="litellm is not installed.")

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.filterwarnings("default")]

MESSAGES = [{"role": "user", "content": "Tell me something nice."}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with LiveServer(speedup_ratio=1e6, block_size=16, api_key=("key-1",)) as live:
        yield live


@pytest.fixture(params=["openai/mocker", "hosted_vllm/mocker"])
def ask(request: pytest.FixtureRequest, server: LiveServer) -> Any:
    def call(**more: Any) -> Any:
        return litellm.completion(
            model=request.param,
            api_base=f"{server.url}/v1",
            api_key="key-1",
            messages=MESSAGES,
            seed=3,
            num_retries=0,
            **more,
        )

    return call


def test_whole_and_streamed_answers_agree(ask: Any) -> None:
    whole = ask(max_tokens=30)
    chunks = list(ask(max_tokens=30, stream=True, stream_options={"include_usage": True}))
    built = litellm.stream_chunk_builder(chunks, messages=MESSAGES)
    assert built.choices[0].message.content == whole.choices[0].message.content != ""
    assert built.usage.completion_tokens == whole.usage.completion_tokens
    assert built.choices[0].finish_reason == whole.choices[0].finish_reason


def test_tools_agree_whole_and_streamed(ask: Any) -> None:
    whole = ask(tools=[TOOL]).choices[0]
    built = litellm.stream_chunk_builder(list(ask(tools=[TOOL], stream=True)), messages=MESSAGES).choices[0]
    assert whole.finish_reason == built.finish_reason == "tool_calls"
    assert whole.message.tool_calls[0].function.name == "weather"
    mine, other = whole.message.tool_calls[0].function, built.message.tool_calls[0].function
    assert (mine.name, mine.arguments) == (other.name, other.arguments)


def test_reasoning_is_found(ask: Any) -> None:
    extra = {"chat_template_kwargs": {"enable_thinking": True}}
    whole = ask(max_tokens=100, extra_body=extra).choices[0].message
    assert whole.reasoning_content
    chunks = list(ask(max_tokens=100, extra_body=extra, stream=True))
    pieces = [getattr(chunk.choices[0].delta, "reasoning_content", None) or "" for chunk in chunks]
    assert "".join(pieces) == whole.reasoning_content


def test_errors_have_their_class(ask: Any, server: LiveServer) -> None:
    with pytest.raises(litellm.BadRequestError):
        ask(max_tokens=0)
    with pytest.raises(litellm.RateLimitError):
        ask(extra_headers={"X-Mocker-Error": "429"})
    with pytest.raises(litellm.AuthenticationError):
        litellm.completion(
            model="openai/mocker", api_base=f"{server.url}/v1", api_key="none", messages=MESSAGES
        )


def test_embeddings_are_numbers(server: LiveServer) -> None:
    got = litellm.embedding(
        model="openai/mocker", api_base=f"{server.url}/v1", api_key="key-1", input=["red apples"]
    )
    assert len(got.data[0]["embedding"]) == 1536
