"""What must be refused, with which status and which parameter; and that the server is unharmed by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.harness.live_server import LiveServer

pytestmark = pytest.mark.e2e

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
MAX_MODEL_LEN = 512


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with LiveServer(speedup_ratio=1e6, block_size=16, max_model_len=MAX_MODEL_LEN, max_body_mb=1.0) as live:
        yield live


@pytest.fixture(scope="module")
def http(server: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=30.0) as client:
        yield client


def chat(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "hi"}], **more}


def text(**more: Any) -> dict[str, Any]:
    return {"prompt": "hi", **more}


def user(content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


# (name, path, body, status, param; "*": any)
ROWS: list[tuple[str, str, Any, int, str | None]] = [
    ("no body", CHAT, b"", 400, None),
    ("not JSON", CHAT, b"{nope", 400, None),
    ("JSON cut short", CHAT, b'{"messages": [', 400, None),
    ("two values", CHAT, b"{} {}", 400, None),
    ("a list", CHAT, b"[]", 400, None),
    ("null", CHAT, b"null", 400, None),
    ("a text", CHAT, b'"hi"', 400, None),
    ("not UTF-8", CHAT, b'{"messages": [{"role": "user", "content": "\xff"}]}', 400, None),
    ("a lone surrogate", CHAT, b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400, None),
    ("NaN", CHAT, b'{"messages": [], "temperature": NaN}', 400, None),
    ("a number too large", CHAT, b'{"messages": [], "temperature": 1e999}', 400, "body.temperature"),
    ("deep nesting", CHAT, b'{"messages": ' + b"[" * 20000 + b"]" * 20000 + b"}", 400, "*"),
    ("deep nesting unknown", CHAT, b'{"x": ' + b"[" * 20000 + b"]" * 20000 + b"}", 400, None),
    ("no messages", CHAT, {}, 400, "*"),
    ("messages null", CHAT, {"messages": None}, 400, "body.messages"),
    ("messages a text", CHAT, {"messages": "hi"}, 400, "body.messages"),
    ("messages empty", CHAT, {"messages": []}, 400, "messages"),
    ("a message a text", CHAT, {"messages": ["hi"]}, 400, "body.messages.0"),
    ("no role", CHAT, {"messages": [{"content": "hi"}]}, 400, "*"),
    ("unknown role", CHAT, {"messages": [{"role": "alien", "content": "hi"}]}, 400, "*"),
    ("role a number", CHAT, {"messages": [{"role": 3, "content": "hi"}]}, 400, "*"),
    ("content a number", CHAT, user(3), 400, "*"),
    ("content an object", CHAT, user({"type": "text"}), 400, "*"),
    ("a part a number", CHAT, user([3]), 400, "*"),
    ("a part without a type", CHAT, user([{"text": "hi"}]), 400, "*"),
    ("an unknown part", CHAT, user([{"type": "smell", "smell": "x"}]), 400, "*"),
    ("image_url a text", CHAT, user([{"type": "image_url", "image_url": "http://x"}]), 400, "*"),
    ("n 0", CHAT, chat(n=0), 400, "n"),
    ("n negative", CHAT, chat(n=-1), 400, "n"),
    ("n huge", CHAT, chat(n=100000), 400, "n"),
    ("n a text", CHAT, chat(n="2"), 400, "body.n"),
    ("n true", CHAT, chat(n=True), 400, "body.n"),
    ("n 2 when greedy", CHAT, chat(n=2, temperature=0), 400, "n"),
    ("temperature 3", CHAT, chat(temperature=3), 400, "temperature"),
    ("temperature negative", CHAT, chat(temperature=-0.1), 400, "temperature"),
    ("temperature a text", CHAT, chat(temperature="hot"), 400, "body.temperature"),
    ("top_p 0", CHAT, chat(top_p=0), 400, "top_p"),
    ("top_p 1.5", CHAT, chat(top_p=1.5), 400, "top_p"),
    ("top_k -2", CHAT, chat(top_k=-2), 400, "top_k"),
    ("min_p 2", CHAT, chat(min_p=2), 400, "min_p"),
    ("repetition_penalty 0", CHAT, chat(repetition_penalty=0), 400, "repetition_penalty"),
    ("presence_penalty 3", CHAT, chat(presence_penalty=3), 400, "presence_penalty"),
    ("frequency_penalty -3", CHAT, chat(frequency_penalty=-3), 400, "frequency_penalty"),
    ("logit_bias 200", CHAT, chat(logit_bias={"1": 200}), 400, "logit_bias"),
    ("logit_bias for a word", CHAT, chat(logit_bias={"word": 1}), 400, "logit_bias"),
    ("max_tokens 0", CHAT, chat(max_tokens=0), 400, "max_tokens"),
    ("max_tokens negative", CHAT, chat(max_tokens=-5), 400, "max_tokens"),
    ("max_tokens a fraction", CHAT, chat(max_tokens=1.5), 400, "body.max_tokens"),
    ("max_tokens huge", CHAT, chat(max_tokens=10**9), 400, "messages"),
    ("max_tokens beyond 64 bits", CHAT, chat(max_tokens=10**30), 400, "*"),
    ("max_completion_tokens 0", CHAT, chat(max_completion_tokens=0), 400, "max_completion_tokens"),
    ("min_tokens over max_tokens", CHAT, chat(min_tokens=9, max_tokens=3), 400, "min_tokens"),
    ("min_tokens negative", CHAT, chat(min_tokens=-1), 400, "min_tokens"),
    ("a prompt too long", CHAT, user("word " * 2000), 400, "messages"),
    ("prompt and answer too long", CHAT, chat(max_tokens=MAX_MODEL_LEN), 400, "messages"),
    ("an empty stop", CHAT, chat(stop=[""]), 400, "stop"),
    ("stop a number", CHAT, chat(stop=3), 400, "body.stop"),
    ("stop token negative", CHAT, chat(stop_token_ids=[-1]), 400, "stop_token_ids"),
    ("stream a text", CHAT, chat(stream="yes"), 400, "body.stream"),
    ("stream_options alone", CHAT, chat(stream_options={"include_usage": True}), 400, "stream_options"),
    ("stream_options a list", CHAT, chat(stream=True, stream_options=[]), 400, "body.stream_options"),
    ("top_logprobs alone", CHAT, chat(top_logprobs=2), 400, "top_logprobs"),
    ("top_logprobs 99", CHAT, chat(logprobs=True, top_logprobs=99), 400, "top_logprobs"),
    ("seed a text", CHAT, chat(seed="x"), 400, "body.seed"),
    ("seed beyond 64 bits", CHAT, chat(seed=2**70), 400, "seed"),
    ("priority a text", CHAT, chat(priority="x"), 400, "body.priority"),
    ("unknown model", CHAT, chat(model="gpt-9"), 404, "model"),
    ("model a number", CHAT, chat(model=4), 400, "body.model"),
    ("a body over the limit", CHAT, b" " * 1_000_001, 413, None),
    ("a body far over the limit", CHAT, b'{"messages": "' + b"x" * 10_000_000 + b'"}', 413, None),
    ("no prompt", TEXT, {}, 400, "prompt"),
    ("prompt empty", TEXT, text(prompt=""), 400, "prompt"),
    ("prompt an empty list", TEXT, text(prompt=[]), 400, "prompt"),
    ("prompt with an empty text", TEXT, text(prompt=["a", ""]), 400, "prompt"),
    ("prompt with an empty list", TEXT, text(prompt=[[1], []]), 400, "prompt"),
    ("prompt mixed", TEXT, text(prompt=["a", 1]), 400, "body.prompt"),
    ("prompt mixed ids", TEXT, text(prompt=[1, "a"]), 400, "body.prompt"),
    ("prompt of booleans", TEXT, text(prompt=[True]), 400, "body.prompt"),
    ("prompt a number", TEXT, text(prompt=7), 400, "body.prompt"),
    ("a negative token id", TEXT, text(prompt=[-1]), 400, "prompt"),
    ("a token id over 32 bits", TEXT, text(prompt=[2**32]), 400, "prompt"),
    ("a list prompt too long", TEXT, text(prompt=list(range(MAX_MODEL_LEN))), 400, "prompt"),
    ("best_of under n", TEXT, text(n=3, best_of=2), 400, "best_of"),
    ("best_of streamed", TEXT, text(best_of=2, stream=True), 400, "best_of"),
    ("logprobs 99", TEXT, text(logprobs=99), 400, "logprobs"),
    ("logprobs negative", TEXT, text(logprobs=-1), 400, "logprobs"),
    ("max_tokens 0 without echo", TEXT, text(max_tokens=0), 400, "max_tokens"),
    ("unknown model for text", TEXT, text(model="x"), 404, "model"),
]


@pytest.mark.parametrize(
    ("path", "body", "status", "param"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_a_bad_request_is_refused_with_a_full_error(
    http: httpx.Client, path: str, body: Any, status: int, param: str | None
) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    got = http.post(path, content=raw, headers={"Content-Type": "application/json"})
    assert got.status_code == status, got.text
    assert got.headers["content-type"] == "application/json"
    error = got.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == status
    assert error["message"].endswith(".")
    if param != "*":
        assert error["param"] == param
    # The next request on the same connection is served.
    assert http.post(CHAT, json=chat(max_tokens=1)).status_code == 200


GOOD: list[tuple[str, str, Any]] = [
    ("NUL in a text", CHAT, user("a\0b")),
    (
        "a surrogate pair",
        CHAT,
        b'{"max_tokens": 1, "messages": [{"role": "user", "content": "\\ud83d\\ude00"}]}',
    ),
    ("an unknown field", CHAT, chat(no_such_field=[1, {"a": 2}], max_tokens=1)),
    ("a charset nobody asked for", CHAT, chat(max_tokens=1)),
    (
        "an assistant's empty content",
        CHAT,
        {"messages": [{"role": "assistant", "content": ""}, *chat()["messages"]]},
    ),
    (
        "an image",
        CHAT,
        user([{"type": "image_url", "image_url": {"url": "http://x/y.png", "detail": "low"}}]),
    ),
    ("a missing model", TEXT, text(max_tokens=1)),
    ("the empty model", TEXT, text(max_tokens=1, model="")),
    ("nulls everywhere", CHAT, chat(n=None, stop=None, stream=None, temperature=None, seed=None, tools=None)),
    ("max_tokens up to the limit", TEXT, text(prompt=[1] * 12, max_tokens=MAX_MODEL_LEN - 12)),
]


@pytest.mark.parametrize(("path", "body"), [row[1:] for row in GOOD], ids=[row[0] for row in GOOD])
def test_odd_but_right_requests_are_served(http: httpx.Client, path: str, body: Any) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    got = http.post(path, content=raw)
    assert got.status_code == 200, got.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", TEXT, 405),
        ("PUT", TEXT, 405),
        ("DELETE", CHAT, 405),
        ("POST", "/v1/models", 405),
        ("POST", "/health", 405),
        ("GET", "/v1/nothing", 404),
        ("GET", "/", 404),
        ("GET", "/v1/models/nothing", 404),
        ("DELETE", "/v1/models/mocker", 403),
        ("POST", "/v1/chat/completions/", 404),
    ],
)
def test_a_wrong_route_or_method_has_the_same_error_shape(
    http: httpx.Client, method: str, path: str, status: int
) -> None:
    got = http.request(method, path)
    assert got.status_code == status
    error = got.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == status
    if status == 405:
        assert got.headers["allow"]


def test_too_long_says_both_numbers_in_the_known_sentence(http: httpx.Client) -> None:
    message = http.post(TEXT, json=text(prompt=[1] * 500, max_tokens=100)).json()["error"]["message"]
    assert message == (
        "This model's maximum context length is 512 tokens. However, you requested 600 tokens "
        "(500 in the prompt, 100 in the completion). Please reduce the length of the prompt or completion."
    )
    message = http.post(TEXT, json=text(prompt=[1] * 600)).json()["error"]["message"]
    assert message.startswith(
        "This model's maximum context length is 512 tokens. However, your prompt resulted in 600 "
    )


def test_a_stream_that_is_refused_is_no_stream(http: httpx.Client) -> None:
    got = http.post(CHAT, json=chat(stream=True, max_tokens=10**6))
    assert got.status_code == 400
    assert got.headers["content-type"] == "application/json"


def test_the_server_is_unharmed_in_the_end(server: LiveServer, http: httpx.Client) -> None:
    figures = http.get("/admin/metrics").json()
    assert figures["requests"]["live"] == 0
    assert figures["requests"]["server_load"] == 0
    assert http.get("/health").status_code == 200
