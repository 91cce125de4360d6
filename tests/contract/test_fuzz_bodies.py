"""Whatever JSON comes, the answer is an answer or a refusal in the right shape; never a 500, never a hang."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.openai.chat_completion.protocol import ChatCompletionRequest
from app.openai.completion.protocol import CompletionRequest
from tests.harness.asgi_stream import parse_records
from tests.harness.live_server import LiveServer

pytestmark = pytest.mark.e2e

LONGEST_ANSWER = 64
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-3, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
_ANYTHING = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
)
_PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url", "x"])}, optional={"text": _SCALARS}
)
_CONTENT = st.text(max_size=20) | st.none() | st.lists(_PARTS, max_size=2) | _ANYTHING
_MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system", "tool", "alien"]), "content": _CONTENT}
    ),
    max_size=3,
)
_PROMPTS = st.text(max_size=20) | st.lists(st.integers(-1, 2**33), max_size=5) | _ANYTHING
# Left out: what only asks for much work.
_HEAVY = {"n", "best_of", "max_tokens", "max_completion_tokens", "messages", "prompt", "model"}


def fields(kind: type[Any]) -> list[str]:
    return sorted(set(kind.__struct_fields__) - _HEAVY)


def bodies(kind: type[Any], key: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    extras = st.dictionaries(st.sampled_from(fields(kind)), _ANYTHING, max_size=4)
    return st.builds(lambda value, more: {**more, key: value, "max_tokens": 3}, values, extras)


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with (
        LiveServer(
            speedup_ratio=1e6, block_size=16, max_model_len=2048, output_length_max=LONGEST_ANSWER
        ) as server,
        httpx.Client(base_url=server.url, timeout=20.0) as client,
    ):
        yield client
        assert client.get("/admin/metrics").json()["requests"]["live"] == 0


def check(http: httpx.Client, path: str, body: dict[str, Any]) -> None:
    got = http.post(path, content=json.dumps(body).encode())
    assert got.status_code in (200, 400, 404), got.text
    if got.status_code != 200:
        assert set(got.json()["error"]) == {"message", "type", "param", "code"}
    elif got.headers["content-type"].startswith("text/event-stream"):
        records = parse_records(got.content)
        assert records[-1] == "[DONE]"
        assert not any("error" in record for record in records[:-1])
    else:
        assert got.json()["usage"]["completion_tokens"] >= 1


@settings(max_examples=150)
@given(body=bodies(ChatCompletionRequest, "messages", _MESSAGES))
def test_any_chat_body_is_answered_or_refused(http: httpx.Client, body: dict[str, Any]) -> None:
    check(http, "/v1/chat/completions", body)


@settings(max_examples=150)
@given(body=bodies(CompletionRequest, "prompt", _PROMPTS))
def test_any_completion_body_is_answered_or_refused(http: httpx.Client, body: dict[str, Any]) -> None:
    check(http, "/v1/completions", body)
