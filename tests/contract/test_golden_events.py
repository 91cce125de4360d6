"""Event streams of Responses and Messages byte for byte.

`python -m tests.contract.test_golden_events` writes them anew; review them. Echo mode, a seed and a fixed
request id make them independent of prose; times are masked.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

from tests.harness.asgi_stream import serving
from tests.unit.app.serving_fixtures import make_app

GOLDEN = Path(__file__).parent / "golden"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
SAID = 'Say "ü🎉"\nand\tend.'
PARAMETERS = {
    "type": "object",
    "properties": {"n": {"const": 7}},
    "required": ["n"],
    "additionalProperties": False,
}
FUNCTION = {"type": "function", "name": "count", "parameters": PARAMETERS}
TOOL = {"name": "count", "input_schema": PARAMETERS}
HELLO = [{"role": "user", "content": SAID}]

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "responses_whole": (RESPONSES, {"input": SAID}),
    "responses_stream": (RESPONSES, {"input": SAID, "stream": True}),
    "responses_stream_cut": (RESPONSES, {"input": SAID, "stream": True, "max_output_tokens": 2}),
    "responses_stream_call": (
        RESPONSES,
        {"input": SAID, "stream": True, "seed": 1, "tools": [FUNCTION], "tool_choice": "required"},
    ),
    "responses_error": (RESPONSES, {"input": [], "stream": True}),
    "messages_whole": (MESSAGES, {"messages": HELLO, "max_tokens": 64}),
    "messages_stream": (MESSAGES, {"messages": HELLO, "max_tokens": 64, "stream": True}),
    "messages_stream_cut": (MESSAGES, {"messages": HELLO, "max_tokens": 2, "stream": True}),
    "messages_stream_stop": (
        MESSAGES,
        {"messages": HELLO, "max_tokens": 64, "stream": True, "stop_sequences": ["and"]},
    ),
    "messages_stream_call": (
        MESSAGES,
        {
            "messages": HELLO,
            "max_tokens": 64,
            "stream": True,
            "seed": 1,
            "tools": [TOOL],
            "tool_choice": {"type": "any"},
        },
    ),
    "messages_error": (MESSAGES, {"messages": [], "max_tokens": 64, "stream": True}),
}


def answers() -> dict[str, bytes]:
    """Every case's status line and body."""

    async def main() -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        app = make_app(content="echo", enable_prefix_caching=False, max_model_len=4096)
        async with serving(app) as client:
            for name, (path, body) in CASES.items():
                got = await client.post(path, {**body, "store": False}, {"X-Request-Id": "golden"})
                masked = re.sub(rb'"(created_at|completed_at)":\d+', rb'"\1":0', got.body)
                found[name] = b"%d\n%s" % (got.status or 0, masked)
        return found

    return asyncio.run(main())


def path_of(name: str) -> Path:
    return GOLDEN / f"events_{name}.txt"


def test_event_streams_are_the_golden_bytes() -> None:
    for name, found in answers().items():
        assert found == path_of(name).read_bytes(), name


if __name__ == "__main__":
    for case, content in answers().items():
        path_of(case).write_bytes(content)
