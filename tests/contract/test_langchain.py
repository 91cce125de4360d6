"""langchain-openai against a real server; skipped where it is not installed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.live_server import LiveServer

os.environ.setdefault("LANGSMITH_TRACING", "false")
langchain_openai = pytest.importorskip("langchain_openai", reason="langchain-openai is not installed.")

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.filterwarnings("default")]

WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "The weather of a place",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CITY: dict[str, Any] = {
    "title": "City",
    "description": "A city",
    "type": "object",
    "properties": {"name": {"type": "string"}, "population": {"type": "integer"}},
    "required": ["name", "population"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with LiveServer(speedup_ratio=1e6, block_size=16, api_key=("key-1",)) as live:
        yield live


@pytest.fixture
def chat(server: LiveServer) -> Any:
    return langchain_openai.ChatOpenAI(
        model="mocker",
        base_url=f"{server.url}/v1",
        api_key="key-1",
        seed=3,
        max_tokens=40,
        max_retries=0,
        stream_usage=True,
    )


def test_invoke_and_stream_say_the_same(chat: Any) -> None:
    whole = chat.invoke("Tell me something nice.")
    pieces = list(chat.stream("Tell me something nice."))
    total = pieces[0]
    for piece in pieces[1:]:
        total += piece
    assert total.content == whole.content != ""
    assert total.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"]
    assert total.response_metadata["finish_reason"] == whole.response_metadata["finish_reason"]


def test_tools_are_called_whole_and_streamed(chat: Any) -> None:
    bound = chat.bind_tools([WEATHER])
    whole = bound.invoke("The weather?")
    assert [call["name"] for call in whole.tool_calls] == ["weather"]
    assert isinstance(whole.tool_calls[0]["args"]["city"], str)
    total: Any = None
    for piece in bound.stream("The weather?"):
        total = piece if total is None else total + piece
    assert [call["args"] for call in total.tool_calls] == [call["args"] for call in whole.tool_calls]
    assert total.tool_calls[0]["id"] == whole.tool_calls[0]["id"]


@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_structured_output_is_parsed(chat: Any, method: str) -> None:
    got = chat.with_structured_output(CITY, method=method).invoke("A city, as JSON.")
    if method != "json_mode":
        assert isinstance(got["population"], int)
    assert isinstance(got, dict)


def test_logprobs_batches_and_embeddings_work(server: LiveServer, chat: Any) -> None:
    got = chat.bind(logprobs=True, top_logprobs=2).invoke("Hi")
    assert len(got.response_metadata["logprobs"]["content"]) == got.usage_metadata["output_tokens"]
    assert len(chat.batch(["a", "b", "c"])) == 3
    # Without the check it does not split texts with a tokenizer of its own.
    embed = langchain_openai.OpenAIEmbeddings(
        model="mocker", base_url=f"{server.url}/v1", api_key="key-1", check_embedding_ctx_length=False
    )
    vectors = embed.embed_documents(["red apples", "the sea"])
    assert [len(vector) for vector in vectors] == [1536, 1536]


def test_the_responses_api_works(server: LiveServer) -> None:
    chat = langchain_openai.ChatOpenAI(
        model="mocker", base_url=f"{server.url}/v1", api_key="key-1", use_responses_api=True, max_tokens=40
    )
    assert chat.invoke("Hi").text
    assert "".join(piece.text for piece in chat.stream("Hi"))
