"""Answers byte for byte. `python -m tests.contract.test_golden_streams` writes them anew; review them.

Echo mode and a fixed request id make them independent of prose; what depends on the clock or on the
vocabulary is masked.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest

from tests.harness.asgi_stream import serving
from tests.unit.app.serving_fixtures import chat, make_app

MASKS = [
    (rb'"created":\d+', b'"created":0'),
    (rb'"token_ids":\[\d+\]', b'"token_ids":[0]'),
    (rb"-\d+\.\d+(e-\d+)?", b"-0.5"),
    (rb"chatcmpl-tool-[0-9a-f]{32}", b"chatcmpl-tool-0"),
]
GOLDEN = Path(__file__).parent / "golden"
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USAGE = {"include_usage": True}
RUNNING = {"include_usage": True, "continuous_usage_stats": True}
SAID = 'Say "ü🎉"\nand\tend.'
# Schemas with one instance only, so that what is called does not depend on the generator.
FIXED = {"type": "object", "properties": {"unit": {"const": "ü\n"}}, "required": ["unit"]}
TOOL = {"type": "function", "function": {"name": "weather", "parameters": FIXED}}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat_whole": (CHAT, chat(SAID, max_tokens=64)),
    "chat_stream": (CHAT, chat(SAID, max_tokens=64, stream=True)),
    "chat_stream_usage": (CHAT, chat(SAID, max_tokens=2, stream=True, stream_options=USAGE)),
    "chat_stream_running_usage": (CHAT, chat("one two", stream=True, stream_options=RUNNING)),
    "chat_stream_two": (CHAT, chat("one two", n=2, stream=True)),
    "chat_stream_stop": (CHAT, chat("one two three", stop=["two"], stream=True)),
    "chat_stream_token_ids": (CHAT, chat("one two", return_token_ids=True, stream=True)),
    "chat_whole_tool": (CHAT, chat("one", tools=[TOOL], max_tokens=64)),
    "chat_stream_tool": (CHAT, chat("one", tools=[TOOL], max_tokens=64, stream=True, stream_options=USAGE)),
    "chat_stream_tool_cut": (CHAT, chat("one", tools=[TOOL], max_tokens=6, stream=True)),
    "chat_stream_function": (CHAT, chat("one", functions=[TOOL["function"]], max_tokens=64, stream=True)),
    "chat_stream_choice": (CHAT, chat("one", guided_choice=["yes"], stream=True)),
    "text_whole": (TEXT, {"prompt": "one two", "max_tokens": 64}),
    "text_stream": (TEXT, {"prompt": "one two", "stream": True, "stream_options": USAGE}),
    "text_stream_echo": (TEXT, {"prompt": ["one", "two"], "echo": True, "stream": True}),
    "error_schema": (CHAT, {"messages": "hi"}),
    "error_value": (CHAT, chat(n=0)),
    "error_model": (CHAT, chat(model="x")),
    "error_tools": (CHAT, chat(tools=[])),
    "error_tool_choice": (CHAT, chat(tool_choice="auto")),
    "error_response_format": (CHAT, chat(response_format={"type": "json_schema"})),
    "error_length": (CHAT, chat("hi", max_tokens=10**9)),
    "chat_stream_logprobs": (CHAT, chat("one two", logprobs=True, stream=True)),
    "text_stream_logprobs": (TEXT, {"prompt": "one two", "logprobs": 0, "stream": True}),
    "text_whole_logprobs": (TEXT, {"prompt": "one two", "logprobs": 0, "echo": True}),
}
# What only written answers say alike on every day: reasoning, text before calls, several calls.
FIXTURES = """
- match: {user: think}
  answer: {reasoning: "Let me see.", text: "Two."}
- match: {user: both}
  answer:
    text: "Look:"
    tool_calls: [{name: weather, arguments: {city: Oslo}}, {name: clock, arguments: {}}]
- match: {user: limit}
  answer: {error: {status: 429, message: "Slow down.", code: too_fast}}
"""
WRITTEN_CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "chat_whole_reasoning": (CHAT, chat("think")),
    "chat_stream_reasoning": (CHAT, chat("think", stream=True, stream_options=USAGE)),
    "chat_stream_reasoning_hidden": (CHAT, chat("think", include_reasoning=False, stream=True)),
    "chat_stream_text_and_calls": (CHAT, chat("both", stream=True)),
    "error_fixture": (CHAT, chat("limit", stream=True)),
}


def answers(profile: str) -> dict[str, bytes]:
    """Every case's status line and body in one profile."""

    async def main() -> dict[str, bytes]:
        found = await ask(CASES, content="echo", wire_profile=profile)
        with NamedTemporaryFile("w", suffix=".yaml") as fixtures:
            fixtures.write(FIXTURES)
            fixtures.flush()
            written = {"content": "fixtures", "content_path": fixtures.name}
            return found | await ask(WRITTEN_CASES, **written, wire_profile=profile)

    return asyncio.run(main())


async def ask(cases: dict[str, tuple[str, dict[str, Any]]], **settings: Any) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    app = make_app(enable_prefix_caching=False, max_model_len=4096, **settings)
    async with serving(app) as client:
        for name, (path, body) in cases.items():
            got = await client.post(path, body, {"X-Request-Id": "golden"})
            masked = got.body
            for what, instead in MASKS:
                masked = re.sub(what, instead, masked)
            found[name] = b"%d\n%s" % (got.status or 0, masked)
    return found


def path_of(profile: str, name: str) -> Path:
    return GOLDEN / f"{profile}_{name}.txt"


@pytest.mark.parametrize("profile", ["vllm", "openai"])
def test_answers_are_the_golden_bytes(profile: str) -> None:
    for name, found in answers(profile).items():
        assert found == path_of(profile, name).read_bytes(), name


if __name__ == "__main__":
    for each in ("vllm", "openai"):
        for case, content in answers(each).items():
            path_of(each, case).write_bytes(content)
