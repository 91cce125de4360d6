"""What /v1/messages answers: streamed and whole alike, the documented order, one error envelope."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from app.anthropic.convert import chat_messages
from app.anthropic.events import MessageEvents, content_block
from app.openai.blocks import Block
from app.state import AppState
from tests.harness.asgi_stream import AsgiClient
from tests.unit.app.event_records import kinds, read_events
from tests.unit.app.serving_fixtures import scripted, served

PATH = "/v1/messages"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "array", "items": {"type": "integer"}}},
    "required": ["city"],
}
TOOLS = [{"name": name, "input_schema": SCHEMA} for name in ("one", "two")]
BLOCK_EVENTS = ["content_block_start", "content_block_delta", "content_block_stop"]
FIRST_BLOCK_EVENTS = ["content_block_start", "ping", "content_block_delta", "content_block_stop"]


def ask(content: Any = "Hello there", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 300, "seed": 7, **more}


def accumulated(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that a client builds from the events."""
    message: dict[str, Any] = events[0]["message"]
    arguments: dict[int, str] = {}
    for event in events[1:]:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(message["content"])
                message["content"].append(event["content_block"])
            case "content_block_delta":
                block, delta = message["content"][event["index"]], event["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] += delta["text"]
                    case "thinking_delta":
                        block["thinking"] += delta["thinking"]
                    case "signature_delta":
                        block["signature"] = delta["signature"]
                    case _:
                        text = arguments.get(event["index"], "") + delta["partial_json"]
                        arguments[event["index"]] = text
                        block["input"] = from_json(text, allow_partial=True)
            case "message_delta":
                message |= event["delta"]
                message["usage"] |= event["usage"]
    return message


def comparable(message: dict[str, Any]) -> dict[str, Any]:
    """Without what differs between two equal requests: ids and cached tokens."""
    usage = message["usage"]
    read = usage["input_tokens"] + usage["cache_read_input_tokens"]
    content = [{**block, "id": ""} for block in message["content"]]
    usage = {**usage, "input_tokens": read, "cache_read_input_tokens": 0}
    return {**message, "id": "", "content": content, "usage": usage}


async def both(client: AsgiClient, body: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    whole = await client.post(PATH, body)
    assert whole.status == 200, whole.body
    return whole.json(), read_events((await client.post(PATH, {**body, "stream": True})).body)


@given(
    seed=st.integers(0, 2**32),
    limit=st.integers(1, 60),
    shape=st.sampled_from(["text", "tools", "schema", "thinking", "hidden", "stop"]),
    interval=st.sampled_from([1, 3]),
)
@settings(max_examples=25)
def test_streamed_and_whole_messages_are_the_same(seed: int, limit: int, shape: str, interval: int) -> None:
    body = ask(seed=seed, max_tokens=limit)
    shapes: dict[str, dict[str, Any]] = {
        "text": {},
        "tools": {"tools": TOOLS, "tool_choice": {"type": "any"}},
        "schema": {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        "thinking": {"thinking": {"type": "adaptive"}},
        "hidden": {"thinking": {"type": "adaptive", "display": "omitted"}},
        "stop": {"stop_sequences": ["the", "a "]},
    }
    body |= shapes[shape]

    async def test(client: AsgiClient, state: AppState) -> None:
        whole, events = await both(client, body)
        assert comparable(accumulated(events)) == comparable(whole)

    served(test, stream_interval=interval)


def test_events_are_in_the_documented_order() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        _, events = await both(client, ask())
        assert kinds(events) == ["message_start", *FIRST_BLOCK_EVENTS, "message_delta", "message_stop"]
        assert events[0]["message"]["stop_reason"] is None
        _, events = await both(
            client, ask(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2000)
        )
        order = ["message_start", *FIRST_BLOCK_EVENTS, *BLOCK_EVENTS, "message_delta", "message_stop"]
        assert kinds(events) == order
        starts = [e["content_block"]["type"] for e in events if e["type"] == "content_block_start"]
        assert starts == ["thinking", "text"]

    served(test)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, "end_turn"),
        ({"max_tokens": 3, "ignore_eos": True}, "max_tokens"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "two"}}, "tool_use"),
        ({"tools": TOOLS, "tool_choice": {"type": "any"}, "max_tokens": 6}, "max_tokens"),
        ({"tools": TOOLS, "tool_choice": {"type": "none"}}, "end_turn"),
    ],
)
def test_the_stop_reason_says_how_it_ended(more: dict[str, Any], reason: str) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        whole, events = await both(client, ask(**more))
        assert whole["stop_reason"] == reason
        assert events[-2]["delta"]["stop_reason"] == reason
        assert whole["stop_sequence"] is None

    served(test)


def test_one_call_at_a_time_if_several_are_disabled() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        most = 0
        for seed in range(12):
            body = ask(tools=TOOLS, seed=seed, tool_choice={"type": "any"})
            most = max(most, len((await client.post(PATH, body)).json()["content"]))
            body["tool_choice"]["disable_parallel_tool_use"] = True
            assert len((await client.post(PATH, body)).json()["content"]) == 1
        assert most == 2

    served(test)


def test_all_of_the_prompt_is_input_or_cache_read() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        body = ask("word " * 100)
        counted = (await client.post(f"{PATH}/count_tokens", {"messages": body["messages"]})).json()
        first = (await client.post(PATH, body)).json()["usage"]
        second = (await client.post(PATH, body)).json()["usage"]
        assert first["cache_read_input_tokens"] == 0
        assert first["input_tokens"] == counted["input_tokens"]
        assert second["cache_read_input_tokens"] >= 64
        assert second["input_tokens"] + second["cache_read_input_tokens"] == counted["input_tokens"]

    served(test)


def test_a_tool_turn_reuses_the_prefix_of_its_call() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        body = ask("word " * 60, tools=TOOLS, tool_choice={"type": "any"})
        first = (await client.post(PATH, body)).json()
        results = [
            {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "Rain."}]}
            for call in first["content"]
        ]
        body["messages"] += [
            {"role": "assistant", "content": first["content"]},
            {"role": "user", "content": results},
        ]
        second = (await client.post(PATH, {**body, "tool_choice": {"type": "auto"}})).json()
        assert second["stop_reason"] == "end_turn"
        seen = first["usage"]["input_tokens"] + first["usage"]["output_tokens"]
        assert second["usage"]["cache_read_input_tokens"] >= (seen - 1) // 16 * 16

    served(test)


def test_a_last_assistant_message_is_gone_on_with() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        body = ask()
        open_ended = {**body, "messages": [*body["messages"], {"role": "assistant", "content": "I"}]}
        closed = (await client.post(f"{PATH}/count_tokens", {"messages": body["messages"]})).json()
        opened = (await client.post(f"{PATH}/count_tokens", {"messages": open_ended["messages"]})).json()
        assert opened["input_tokens"] == closed["input_tokens"] + 1
        assert (await client.post(PATH, open_ended)).status == 200

    served(test)


def test_every_kind_of_block_counts() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}
    blocks: list[dict[str, Any]] = [
        image,
        document,
        {"type": "search_result", "title": "t", "source": "s", "content": []},
        {"type": "tool_result", "tool_use_id": "t", "content": [image], "is_error": True},
        {"type": "tool_result", "tool_use_id": "t"},
    ]

    async def test(client: AsgiClient, state: AppState) -> None:
        base = (await client.post(f"{PATH}/count_tokens", ask())).json()["input_tokens"]
        for block in blocks:
            got = await client.post(
                f"{PATH}/count_tokens", ask([{"type": "text", "text": "Hello there"}, block])
            )
            assert got.status == 200, got.body
            assert got.json()["input_tokens"] > base

    served(test)


def test_results_of_tools_come_before_the_users_text() -> None:
    found = chat_messages(
        [{"type": "text", "text": "Be kind."}],
        [
            {"role": "user", "content": "Hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm", "signature": "s"},
                    {"type": "text", "text": "Yes"},
                    {"type": "tool_use", "id": "t", "name": "f", "input": {"ü": [1, 2]}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "So?"},
                    {"type": "tool_result", "tool_use_id": "t", "content": "4"},
                ],
            },
        ],
    )
    assert [message["role"] for message in found] == ["system", "user", "assistant", "tool", "user"]
    assert found[2]["content"] == [{"type": "text", "text": "Yes"}]
    assert found[2]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"ü":[1,2]}'}
    assert found[3]["content"] == "4"


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"{", 400, "invalid_request_error"),
        (b"", 400, "invalid_request_error"),
        ({"messages": []}, 400, "invalid_request_error"),
        ({"max_tokens": None}, 400, "invalid_request_error"),
        ({"max_tokens": 0}, 400, "invalid_request_error"),
        ({"max_tokens": 10**9}, 400, "invalid_request_error"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "invalid_request_error"),
        ({"messages": [{"role": "user", "content": 1}]}, 400, "invalid_request_error"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, "invalid_request_error"),
        ({"messages": [{"role": "user", "content": [1]}]}, 400, "invalid_request_error"),
        ({"stop_sequences": [""]}, 400, "invalid_request_error"),
        ({"thinking": {"type": "enabled"}}, 400, "invalid_request_error"),
        ({"thinking": {"type": "enabled", "budget_tokens": 300}}, 400, "invalid_request_error"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, 400, "invalid_request_error"),
        ({"tools": [{"name": "x"}]}, 400, "invalid_request_error"),
        ({"tools": [{"name": "x", "input_schema": {"type": "wrong"}}]}, 400, "invalid_request_error"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "none"}}, 400, "invalid_request_error"),
        ({"tools": TOOLS, "tool_choice": {"type": "strange"}}, 400, "invalid_request_error"),
        ({"tool_choice": {"type": "any"}}, 400, "invalid_request_error"),
        ({"model": "none"}, 404, "not_found_error"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_every_refusal_has_anthropics_envelope(body: Any, status: int, kind: str, stream: bool) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        sent = body if isinstance(body, bytes) else {**ask(stream=stream), **body}
        got = await client.post(PATH, sent)
        check_envelope(got.status, got.body, status, kind)

    served(test)


def check_envelope(found_status: int | None, body: bytes, status: int, kind: str) -> None:
    assert found_status == status, body
    found = json.loads(body)
    assert set(found) == {"type", "error"}
    assert found["type"] == "error"
    assert set(found["error"]) == {"type", "message"}
    assert found["error"]["type"] == kind


def test_errors_of_the_framework_have_the_same_envelope() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        for method, path, status, kind in (
            ("GET", PATH, 405, "invalid_request_error"),
            ("POST", f"{PATH}/none", 404, "not_found_error"),
            ("GET", f"{PATH}/count_tokens", 405, "invalid_request_error"),
        ):
            got = await client.request(method, path)
            check_envelope(got.status, got.body, status, kind)
        big = await client.post(PATH, b"x" * 5000)
        check_envelope(big.status, big.body, 413, "request_too_large")
        other = await client.request("GET", "/v1/messages_other")
        assert other.json()["error"]["code"] == 404

    served(test, max_body_mb=0.004)


def test_a_wrong_key_has_the_same_envelope() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        refused = await client.post(PATH, ask())
        check_envelope(refused.status, refused.body, 401, "authentication_error")
        assert (await client.post(PATH, ask(), {"x-api-key": "key"})).status == 200

    served(test, api_key=("key",))


@pytest.mark.parametrize("tokens", [0, 2])
def test_a_failure_has_its_status_or_ends_the_stream(tokens: int) -> None:
    async def test(client: AsgiClient, engine: Any, state: AppState) -> None:
        opened = client.open("POST", PATH, ask(stream=True, max_tokens=6, ignore_eos=True))
        await engine.wait_submitted(1)
        for position in range(tokens):
            engine.emit(engine.next_token(engine.submitted[0], position))
        engine.dispatcher.on_dead(0, [engine.submitted[0].request_id], "it broke")
        got = await opened.finished()
        if not tokens:
            check_envelope(got.status, got.body, 503, "overloaded_error")
            return
        last = read_events(got.body)[-1]
        assert (last["type"], last["error"]["type"]) == ("error", "overloaded_error")

    scripted(test)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_request(stream: bool) -> None:
    async def test(client: AsgiClient, engine: Any, state: AppState) -> None:
        opened = client.open("POST", PATH, ask(stream=stream, ignore_eos=True))
        await engine.wait_submitted(1)
        opened.hang_up()
        await opened.finished()
        assert engine.cancelled == [engine.submitted[0].request_id]

    scripted(test)


def test_arguments_cut_anywhere_can_be_read() -> None:
    whole = '{"city":"A\\"\\u00fc","days":[1,-2.5e3,null],"deep":{"ok":true}}'
    for length in range(len(whole) + 1):
        block = content_block("m", Block("tool_call", 0, name="f", text=whole[:length], complete=False))
        assert isinstance(block["input"], dict)
    assert block["input"] == json.loads(whole)


def test_hidden_thinking_sends_no_text() -> None:
    events = MessageEvents("m", hide_thinking=True)
    block = Block("reasoning", 0)
    events.block_start(block)
    assert events.block_delta(block, b"secret", []) == b""
    events.block_start(Block("content", 1))
    assert b"said" in events.block_delta(Block("content", 1), b"said", [])
