"""Integers beyond 64 bits, which JSON allows, are shown again; and no failure leaves a client waiting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.json_body import encode_body
from app.state import AppState
from tests.harness.asgi_stream import AsgiClient
from tests.unit.app.serving_fixtures import chat, served

HUGE = 2**64
SCHEMA = {"type": "object", "properties": {"a": {"const": -HUGE}}, "required": ["a"], "x": HUGE}
TOOL = {"name": "f", "parameters": SCHEMA}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "max_tool_calls": ("/v1/responses", {"input": "x", "max_tool_calls": HUGE}),
    "tool": ("/v1/responses", {"input": "x", "tools": [{"type": "function", **TOOL}]}),
    "format": (
        "/v1/responses",
        {"input": "x", "text": {"format": {"type": "json_schema", "name": "q", "schema": SCHEMA}}},
    ),
    "message": (
        "/v1/messages",
        {
            "messages": [{"role": "user", "content": "x"}],
            "max_tokens": 100,
            "tools": [{"name": "f", "input_schema": SCHEMA}],
            "tool_choice": {"type": "any"},
        },
    ),
    "chat": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "x", "more": HUGE}], "max_tokens": 2, "store": True},
    ),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", BODIES)
def test_a_huge_integer_in_a_request_has_its_whole_answer(name: str, stream: bool) -> None:
    path, body = BODIES[name]

    async def test(client: AsgiClient, state: AppState) -> None:
        answer = await asyncio.wait_for(client.post(path, {**body, "stream": stream}), 20)
        assert answer.status == 200, answer.body
        assert b'"error":{' not in answer.body
        if path == "/v1/responses":
            assert str(HUGE).encode() in answer.body
        elif name == "message" and not stream:
            assert answer.json()["content"][0]["input"] == {"a": -HUGE}

    served(test)


def test_values_that_are_no_json_are_still_refused() -> None:
    with pytest.raises(TypeError):
        encode_body({"a": object()})
    assert encode_body({"é": [HUGE, None]}) == b'{"\xc3\xa9":[18446744073709551616,null]}'


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_cannot_be_put_together_is_an_error_at_once(
    stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("app.openai.stored.store.StoredChat", broken)

    async def test(client: AsgiClient, state: AppState) -> None:
        asked = client.post("/v1/chat/completions", chat(store=True, max_tokens=2, stream=stream))
        answer = await asyncio.wait_for(asked, 20)
        assert answer.status == (200 if stream else 500)
        assert b"internal error" in answer.body
        assert state.load == 0

    served(test)
