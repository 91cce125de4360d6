"""Tools, structured output and reasoning over the chat route: shapes, refusals, streamed equals whole."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from app.state import AppState
from tests.harness.asgi_stream import AsgiClient, Exchange
from tests.unit.app.serving_fixtures import chat, served

PATH = "/v1/chat/completions"
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place",
        "strict": True,
        "parameters": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Weather",
            "type": "object",
            "properties": {
                "city": {"type": "string", "minLength": 2, "examples": ["Oslo"], "description": "Where"},
                "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 1},
                "unit": {"anyOf": [{"const": "C"}, {"const": "F"}, {"type": "null"}]},
                "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "uniqueItems": True},
            },
            "required": ["city", "days", "unit", "tags"],
            "additionalProperties": False,
            "$defs": {"tag": {"enum": ["a", "b", "c"]}},
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}


def answer(body: dict[str, Any], **settings: Any) -> Exchange:
    async def test(client: AsgiClient, state: AppState) -> Exchange:
        return await client.post(PATH, body)

    return served(test, **settings)


def choices(exchange: Exchange) -> list[dict[str, Any]]:
    return [choice for record in exchange.records()[:-1] for choice in record["choices"]]


def gathered(exchange: Exchange, index: int = 0) -> dict[str, Any]:
    """One choice of a stream put together as a client does it."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": [], "finish": None}
    function_call: dict[str, str] = {}
    for choice in choices(exchange):
        if choice["index"] != index:
            continue
        assert message["finish"] is None, "a record after the choice's end"
        delta = choice["delta"]
        message["content"] += delta.get("content") or ""
        message["reasoning_content"] += delta.get("reasoning_content") or ""
        for piece in delta.get("tool_calls", []):
            if piece["index"] == len(message["tool_calls"]):
                assert set(piece) == {"index", "id", "type", "function"}
                assert piece["type"] == "function"
                message["tool_calls"].append(
                    {"id": piece["id"], "type": "function", "function": piece["function"]}
                )
            else:
                assert set(piece) == {"index", "function"}
                assert set(piece["function"]) == {"arguments"}
                call = message["tool_calls"][piece["index"]]["function"]
                call["arguments"] += piece["function"]["arguments"]
        for name, text in delta.get("function_call", {}).items():
            assert name == "arguments" or name not in function_call
            function_call[name] = function_call.get(name, "") + text
        message["finish"] = choice["finish_reason"]
    if function_call:
        message["function_call"] = function_call
    return message


MIXES: list[dict[str, Any]] = [
    {},
    {"tools": [WEATHER]},
    {"tools": [WEATHER, CLOCK], "tool_choice": "required"},
    {"tools": [WEATHER, CLOCK], "n": 2},
    {"tools": [WEATHER], "max_tokens": 12},
    {"tools": [WEATHER], "max_tokens": 5},
    {"tools": [WEATHER, CLOCK], "tool_choice": {"type": "function", "function": {"name": "weather"}}},
    {"tools": [WEATHER], "tool_choice": "none", "response_format": JSON_SCHEMA},
    {"functions": [WEATHER["function"]]},
    {"functions": [WEATHER["function"]], "function_call": {"name": "weather"}},
    {"response_format": JSON_SCHEMA},
    {"response_format": JSON_SCHEMA, "max_tokens": 6},
    {"response_format": {"type": "json_object"}, "logprobs": True, "top_logprobs": 1},
    {"structured_outputs": {"regex": "[a-z]{3,9}@x\\.org"}},
    {"guided_choice": ["yes", "no"]},
    {"chat_template_kwargs": {"enable_thinking": True}},
    {"chat_template_kwargs": {"thinking": True}, "include_reasoning": False},
    {"chat_template_kwargs": {"enable_thinking": True}, "tools": [WEATHER], "logprobs": True},
    {"chat_template_kwargs": {"enable_thinking": True}, "max_tokens": 4},
]


@pytest.mark.parametrize("extra", MIXES, ids=lambda extra: json.dumps(extra)[:60])
@pytest.mark.parametrize("profile", ["vllm", "openai"])
def test_streamed_and_whole_answers_agree_for_many_seeds(extra: dict[str, Any], profile: str) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        for seed in range(8):
            body = chat(seed=seed, **{"max_tokens": 400, **extra})
            whole = (await client.post(PATH, body)).json()
            options = {"include_usage": True}
            streamed = await client.post(PATH, {**body, "stream": True, "stream_options": options})
            for choice in whole["choices"]:
                message, got = choice["message"], gathered(streamed, choice["index"])
                assert got["content"] == (message["content"] or "")
                assert got["reasoning_content"] == message.get("reasoning_content", "")
                assert got["tool_calls"] == message.get("tool_calls", [])
                assert got.get("function_call") == message.get("function_call")
                assert got["finish"] == choice["finish_reason"]
                if "logprobs" in extra:
                    mine = [item for item in choices(streamed) if item["index"] == choice["index"]]
                    entries = [
                        entry for item in mine if item["logprobs"] for entry in item["logprobs"]["content"]
                    ]
                    assert entries == choice["logprobs"]["content"]
                    assert len(entries) == whole["usage"]["completion_tokens"]
            usage = streamed.records()[-2]["usage"]
            for name in ("prompt_tokens", "completion_tokens", "total_tokens", "completion_tokens_details"):
                assert usage.get(name) == whole["usage"].get(name)

    served(test, wire_profile=profile)


def test_calls_have_arguments_valid_for_the_schema() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        for seed in range(20):
            choice = (await client.post(PATH, chat(seed=seed, tools=[WEATHER]))).json()["choices"][0]
            assert choice["finish_reason"] == "tool_calls"
            assert choice["message"]["content"] is None
            call = choice["message"]["tool_calls"][0]
            assert call["id"].startswith("chatcmpl-tool-")
            parameters = WEATHER["function"]["parameters"]  # type: ignore[index]
            jsonschema.validate(json.loads(call["function"]["arguments"]), parameters)

    served(test)


def test_an_agent_that_sends_the_result_back_gets_text() -> None:
    first = answer(chat(seed=1, tools=[WEATHER])).json()["choices"][0]["message"]
    turns = [
        {"role": "user", "content": "Hello there"},
        {**first, "content": ""},
        {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "rain"},
    ]
    got = answer({"messages": turns, "tools": [WEATHER], "seed": 1}).json()["choices"][0]
    assert got["finish_reason"] == "stop"
    assert got["message"]["content"]


def test_json_schema_answers_are_valid_or_cut() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        for seed in range(20):
            body = chat(seed=seed, response_format=JSON_SCHEMA)
            choice = (await client.post(PATH, body)).json()["choices"][0]
            assert choice["finish_reason"] == "stop"
            jsonschema.validate(json.loads(choice["message"]["content"]), PERSON)
            cut = (await client.post(PATH, {**body, "max_tokens": 3})).json()["choices"][0]
            assert cut["finish_reason"] == "length"

    served(test)


def test_completions_are_constrained_too() -> None:
    async def test(client: AsgiClient, state: AppState) -> Any:
        return (await client.post("/v1/completions", {"prompt": "x", "guided_choice": ["yes"]})).json()

    assert served(test)["choices"][0]["text"] == "yes"


def test_reasoning_is_counted_and_shown_unless_unwanted() -> None:
    body = chat(seed=3, max_tokens=200)
    shown = answer(body, reasoning_parser="any").json()
    message = shown["choices"][0]["message"]
    assert message["reasoning"] == message["reasoning_content"] != ""
    assert shown["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0
    hidden = answer({**body, "include_reasoning": False}, reasoning_parser="any").json()
    assert "reasoning" not in hidden["choices"][0]["message"]
    assert hidden["choices"][0]["message"]["content"] == message["content"]
    assert hidden["usage"]["completion_tokens"] == shown["usage"]["completion_tokens"]
    assert hidden["usage"]["completion_tokens_details"] == shown["usage"]["completion_tokens_details"]


@pytest.mark.parametrize(
    "more", [{"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}], ids=str
)
def test_a_request_can_turn_reasoning_off(more: dict[str, Any]) -> None:
    message = answer(chat(seed=3, **more), reasoning={"thinking_ratio": 0.5}).json()["choices"][0]["message"]
    assert "reasoning_content" not in message


def test_more_effort_reasons_longer() -> None:
    tokens = [
        answer(chat(seed=3, reasoning_effort=effort), reasoning={"thinking_ratio": 0.4}).json()["usage"][
            "completion_tokens_details"
        ]["reasoning_tokens"]
        for effort in ("minimal", "low", "medium", "high", "max")
    ]
    assert tokens == sorted(tokens)
    assert len(set(tokens)) == 5


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": []}, "tools"),
        ({"tool_choice": "auto"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": "maybe"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": 3}}, "tool_choice.function"),
        ({"tools": [WEATHER], "tool_choice": {"type": "odd"}}, "tool_choice.type"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "x"}}},
            "tool_choice.allowed_tools",
        ),
        ({"tools": [{"type": "function"}]}, "tools.0.name"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name"),
        ({"tools": [{"type": "function", "function": 3}]}, "tools.0.function"),
        ({"tools": [{"type": "odd", "function": {"name": "x"}}]}, "tools.0.type"),
        (
            {
                "tools": [
                    CLOCK,
                    {"type": "function", "function": {"name": "x", "parameters": {"type": "odd"}}},
                ]
            },
            "tools.1.function.parameters",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "x", "parameters": [1]}}]},
            "tools.0.function.parameters",
        ),
        ({"functions": []}, "functions"),
        ({"function_call": "auto"}, "function_call"),
        ({"functions": [CLOCK["function"]], "function_call": {"name": "x"}}, "function_call"),
        ({"functions": [CLOCK["function"]], "tools": [CLOCK]}, "functions"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.name"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": 3}}}},
            "response_format",
        ),
        ({"response_format": {"type": "grammar", "grammar": "x"}}, "response_format.type"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
        ({"guided_grammar": "root ::= x"}, "guided_grammar"),
        ({"guided_regex": "("}, "guided_regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_choice": ["a"], "guided_regex": "b"}, "guided_choice"),
        ({"reasoning_effort": "enormous"}, "reasoning_effort"),
    ],
    ids=str,
)
def test_a_wish_that_cannot_be_met_is_400_with_its_param(more: dict[str, Any], param: str) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        for stream in (False, True):
            got = await client.post(PATH, chat(stream=stream, **more))
            error = got.json()["error"]
            assert got.status == 400, got.body
            assert error["param"] == param
            assert error["message"].endswith(".")

    served(test)


def test_image_as_a_text_is_400_and_empty_assistant_content_is_fine() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        picture = {"role": "user", "content": [{"type": "image_url", "image_url": "http://x/y.png"}]}
        assert (await client.post(PATH, {"messages": [picture]})).status == 400
        empties: tuple[Any, ...] = ("", None, [])
        for empty in empties:
            said = [{"role": "assistant", "content": empty}, {"role": "user", "content": "hi"}]
            assert (await client.post(PATH, {"messages": said, "max_tokens": 2})).status == 200

    served(test)
