"""What clients of OpenAI and vLLM depend on and no other test shows; docs/compatibility.md has the list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from app.state import AppState
from tests.harness.asgi_stream import AsgiClient, Exchange
from tests.harness.live_server import LiveServer
from tests.unit.app.serving_fixtures import chat, served

pytestmark = pytest.mark.e2e

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ASK: Any = {"model": "mocker", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}


@pytest.fixture(scope="module", params=["vllm", "openai"])
def server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    with LiveServer(speedup_ratio=1e6, block_size=16, wire_profile=request.param, ping_seconds=0.02) as live:
        yield live


def sdk(server: LiveServer, **more: Any) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key="any", **more)


def post(path: str, body: dict[str, Any] | bytes, **settings: Any) -> Exchange:
    async def test(client: AsgiClient, state: AppState) -> Exchange:
        return await client.post(path, body)

    return served(test, **settings)


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("profile", ["vllm", "openai"])
def test_streams_have_data_lines_and_blank_lines_only(path: str, profile: str) -> None:
    body = {**chat(), "prompt": "hi", "max_tokens": 5, "stream": True}
    got = post(path, body, wire_profile=profile)
    assert got.headers["content-type"] == "text/event-stream; charset=utf-8"
    # No proxy in between may keep or collect them.
    assert (got.headers["cache-control"], got.headers["x-accel-buffering"]) == ("no-store", "no")
    lines = got.body.split(b"\n")
    assert lines[-3:] == [b"data: [DONE]", b"", b""]
    assert all(line.startswith(b"data: ") for line in lines[::2][:-1])
    assert set(lines[1::2]) == {b""}


def test_the_sdk_reads_streams_with_comments_in_them(server: LiveServer) -> None:
    raw = httpx.post(f"{server.url}{CHAT}", json={**ASK, "stream": True}, headers={"X-Mocker-TTFT-Ms": "150"})
    assert raw.content.startswith(b": ping\n\n: ping\n\n")
    slow: Any = {"extra_headers": {"X-Mocker-TTFT-Ms": "150", "X-Mocker-ITL-Ms": "40"}}
    with sdk(server, max_retries=0, _strict_response_validation=True) as client:
        assert len(list(client.chat.completions.create(**ASK, stream=True, **slow))) >= 5
        events = list(
            client.responses.create(
                model="mocker",
                input="hi",
                max_output_tokens=3,
                stream=True,
                extra_body={"ignore_eos": True},
                **slow,
            )
        )
    assert events[-1].type == "response.incomplete"


@pytest.mark.parametrize("profile", ["vllm", "openai"])
def test_every_choice_begins_with_its_role_and_ends_once(profile: str) -> None:
    got = post(CHAT, chat(n=3, max_tokens=4, stream=True), wire_profile=profile)
    for index in range(3):
        mine = [item for record in got.records()[:-1] for item in record["choices"] if item["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert all("role" not in item["delta"] for item in mine[1:])
        assert [bool(item["finish_reason"]) for item in mine] == [False] * (len(mine) - 1) + [True]
        assert all({"index", "delta", "finish_reason"} <= item.keys() for item in mine)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (409, openai.ConflictError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_each_status_is_the_sdks_exception(
    server: LiveServer, status: int, kind: type[openai.APIStatusError], stream: bool
) -> None:
    with sdk(server, max_retries=0) as client, pytest.raises(kind) as caught:
        client.chat.completions.create(**ASK, stream=stream, extra_headers={"X-Mocker-Error": str(status)})
    assert caught.value.status_code == status
    assert caught.value.request_id
    assert isinstance(caught.value.body, dict)
    assert set(caught.value.body) == {"message", "type", "param", "code"}
    assert caught.value.type == caught.value.body["type"]


@pytest.mark.parametrize(("status", "calls"), [(400, 1), (409, 3), (429, 3), (503, 3)])
def test_the_sdk_tries_again_as_the_answer_says(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch, status: int, calls: int
) -> None:
    asked: list[httpx.Request] = []
    slept_s: list[float] = []
    monkeypatch.setattr("openai._base_client.time.sleep", slept_s.append)
    hooks: Any = {"request": [asked.append]}
    with (
        sdk(server, http_client=httpx.Client(event_hooks=hooks)) as client,
        pytest.raises(openai.APIStatusError),
    ):
        client.chat.completions.create(**ASK, extra_headers={"X-Mocker-Error": str(status)})
    assert len(asked) == calls
    assert [request.headers["x-stainless-retry-count"] for request in asked] == list("012")[:calls]
    if status in (429, 503):
        assert slept_s == [1.0, 1.0], "Retry-After is obeyed"


def test_the_sdk_does_not_repeat_what_can_never_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[httpx.Request] = []
    slept_s: list[float] = []
    monkeypatch.setattr("openai._base_client.time.sleep", slept_s.append)
    hooks: Any = {"request": [asked.append]}
    with (
        LiveServer(rate_limit_tokens_per_minute=20) as server,
        sdk(server, http_client=httpx.Client(event_hooks=hooks)) as client,
    ):
        with pytest.raises(openai.RateLimitError):
            client.chat.completions.create(**{**ASK, "max_tokens": 500}, extra_body={"ignore_eos": True})
        assert len(asked) == 1
        assert slept_s == []


def test_an_error_in_mid_stream_is_the_sdks_api_error() -> None:
    with LiveServer(grace_s=0.0) as server, sdk(server, max_retries=0) as client:
        long: Any = {**ASK, "max_tokens": 50_000, "extra_body": {"ignore_eos": True}}
        stream = client.chat.completions.create(**long, stream=True)
        next(stream)
        server.begin_stop()
        with pytest.raises(openai.APIError, match="stopped"):
            for _ in stream:
                pass


def test_a_huge_wrong_value_does_not_come_back_in_the_error() -> None:
    long = "x" * 100_000
    for wrong in (
        {"messages": long},
        {"model": long},
        {"n": list(range(20_000))},
        {"logit_bias": {long: 1}},
        {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": long},
        {"response_format": {"type": long}},
        {"messages": [{"role": long, "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": long}]}]},
    ):
        got = post(CHAT, {**chat(), **wrong})
        assert got.status in (400, 404)
        assert len(got.body) < 2_000


def test_an_unknown_model_is_named_in_the_known_sentence() -> None:
    got = post(CHAT, chat(model="gpt-9"))
    assert got.status == 404
    assert got.json()["error"] == {
        "message": "The model `gpt-9` does not exist.",
        "type": "NotFoundError",
        "param": "model",
        "code": 404,
    }


@pytest.mark.parametrize(
    ("extra", "param"),
    [
        ({"n": 129}, "n"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"presence_penalty": 2.1}, "presence_penalty"),
        ({"messages": []}, "messages"),
    ],
    ids=str,
)
def test_openais_limits_hold_in_its_profile(extra: dict[str, Any], param: str) -> None:
    got = post(CHAT, {**chat(), **extra}, wire_profile="openai")
    assert got.status == 400
    error = got.json()["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert error["code"] is None


@pytest.mark.parametrize(
    "extra", [{"n": 129, "max_tokens": 1}, {"stop": ["~1", "~2", "~3", "~4", "~5"]}], ids=str
)
def test_vllm_has_no_such_limits(extra: dict[str, Any]) -> None:
    assert post(CHAT, {**chat(), "max_tokens": 2, **extra}).status == 200


def test_chat_logprobs_have_all_their_fields() -> None:
    got = post(CHAT, chat(logprobs=True, max_tokens=3, seed=1)).json()["choices"][0]
    for entry in got["logprobs"]["content"]:
        assert set(entry) == {"token", "logprob", "bytes", "top_logprobs"}
        assert bytes(entry["bytes"]).decode() == entry["token"]
        assert entry["logprob"] <= 0
        assert entry["top_logprobs"] == []


def test_service_routes_answer_as_vllms() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        for path in ("/health", "/ping"):
            got = await client.get(path)
            assert (got.status, got.body) == (200, b"")
        assert set((await client.get("/version")).json()) == {"version"}
        assert (await client.get("/load")).json() == {"server_load": 0}
        card = (await client.get("/v1/models")).json()["data"][0]
        assert {
            "id",
            "object",
            "created",
            "owned_by",
            "root",
            "parent",
            "max_model_len",
            "permission",
        } == set(card)
        assert card["owned_by"] == "vllm"

    served(test)


def test_keys_guard_the_api_and_nothing_else() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        kept = ["/v1/models", "/v2/rerank", "/inference/x", "/admin/metrics"]
        free = ["/health", "/ping", "/metrics", "/version", "/load"]
        found = {path: (await client.get(path)).status for path in kept + free}
        assert {path for path, status in found.items() if status == 401} == set(kept)
        assert all(found[path] == 200 for path in free)

    served(test, api_key=("k",))


def test_usage_of_a_stream_is_counted_in_tokens_not_in_chunks() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = chat(max_tokens=12, ignore_eos=True, seed=1, stream=True, stream_options=options)
    records = post(CHAT, body, stream_interval=5).records()[:-1]
    assert len(records) < 8, "several tokens a chunk"
    counts = [record["usage"]["completion_tokens"] for record in records]
    assert counts == sorted(counts)
    assert counts[-1] == 12
    assert json.dumps(records[-1]["choices"]) == "[]"
