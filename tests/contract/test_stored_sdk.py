"""Stored chat completions with the official OpenAI SDK, with strict validation of answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.harness.live_server import LiveServer

pytestmark = pytest.mark.e2e

HELLO: Any = [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]


@pytest.fixture(params=["vllm", "openai"])
def client(request: pytest.FixtureRequest) -> Iterator[OpenAI]:
    with (
        LiveServer(speedup_ratio=1e6, block_size=16, wire_profile=request.param) as live,
        OpenAI(
            base_url=f"{live.url}/v1", api_key="any", max_retries=0, _strict_response_validation=True
        ) as sdk,
    ):
        yield sdk


def ask(client: OpenAI, **more: Any) -> Any:
    return client.chat.completions.create(model="mocker", messages=HELLO, max_tokens=5, store=True, **more)


def test_a_stored_completion_is_retrieved_changed_and_deleted(client: OpenAI) -> None:
    made = ask(client, metadata={"run": "7"})
    found = client.chat.completions.retrieve(made.id)
    assert found.choices[0].message.content == made.choices[0].message.content
    assert found.usage == made.usage
    assert found.metadata == {"run": "7"}
    assert client.chat.completions.update(made.id, metadata={"run": "8"}).metadata == {"run": "8"}
    assert client.chat.completions.retrieve(made.id).metadata == {"run": "8"}
    assert client.chat.completions.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.retrieve(made.id)


def test_a_stream_is_stored_as_the_whole_that_it_said(client: OpenAI) -> None:
    chunks = list(ask(client, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert client.chat.completions.retrieve(chunks[0].id).choices[0].message.content == text


def test_without_store_nothing_is_kept(client: OpenAI) -> None:
    made = client.chat.completions.create(model="mocker", messages=HELLO, max_tokens=2)
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.retrieve(made.id)
    assert list(client.chat.completions.list()) == []


def test_the_list_has_pages_an_order_and_filters(client: OpenAI) -> None:
    made = [ask(client, metadata={"even": str(number % 2 == 0)}).id for number in range(5)]
    assert [item.id for item in client.chat.completions.list(limit=2)] == made
    assert [item.id for item in client.chat.completions.list(order="desc")] == made[::-1]
    page = client.chat.completions.list(limit=2, after=made[1])
    assert [item.id for item in page.data] == made[2:4]
    assert page.has_more
    even = client.chat.completions.list(metadata={"even": "True"})
    assert [item.id for item in even] == made[::2]
    assert list(client.chat.completions.list(model="other")) == []


def test_the_messages_of_a_completion_are_listed(client: OpenAI) -> None:
    made = ask(client)
    # The SDK's type says that every stored message is the assistant's; the API lists what the user sent.
    lenient = client.with_options(_extra_kwargs={"_strict_response_validation": False})
    messages = list(lenient.chat.completions.messages.list(made.id))
    assert [message.content for message in messages] == ["Hello"]
    assert messages[0].id == f"{made.id}-0"
    assert messages[0].content_parts
