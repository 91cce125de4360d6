"""Complaints of users of other mocks and servers that no other test shows; docs/compatibility.md has all."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.openapi.doc import document_text
from app.settings.load import load_settings
from app.state import AppState
from tests.harness.asgi_stream import AsgiClient
from tests.harness.live_server import LiveServer
from tests.harness.pd import assert_drained, toy_proxy_prefill
from tests.harness.scrape import parse, total
from tests.unit.app.serving_fixtures import chat, served

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ROOT = Path(__file__).resolve().parents[2]
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {"type": "object", "properties": {"a": {"const": "x" * 40}}, "required": ["a"]},
    },
}


def documented_commands() -> list[str]:
    """The flags of every `mocker serve` in the documents and examples."""
    found: list[str] = []
    pages = [
        ROOT / "README.md",
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("examples/*.py"),
        *ROOT.glob("deploy/**/*.md"),
    ]
    for page in sorted(pages):
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"mocker serve((?:'[^']*'|[^`'\n#|])*)", text):
            words = " ".join(match[1].replace("\\\n", " ").split())
            if words.startswith("-") and "@" not in words and "..." not in words:
                found.append(words)
    return found


def test_commands_of_the_documents_are_understood() -> None:
    commands = documented_commands()
    assert len(commands) > 8
    for words in commands:
        loaded = load_settings(shlex.split(words), {})
        assert not loaded.notices, (words, loaded.notices)


def test_a_real_models_name_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)

    async def test(client: AsgiClient, state: AppState) -> None:
        got = (await client.post(CHAT, chat(max_tokens=2))).json()
        assert got["model"] == "org/Real-Model-8B-Instruct"

    served(test, model="org/Real-Model-8B-Instruct")


def test_every_post_route_refuses_in_the_same_shape() -> None:
    paths = [path for path, item in json.loads(document_text())["paths"].items() if "post" in item]
    assert len(paths) > 25

    async def test(client: AsgiClient, state: AppState) -> None:
        refused = 0
        for path in paths:
            got = await client.post(re.sub(r"\{\w+\}", "none", path), b"[")
            assert got.status is not None
            assert got.status < 500 and got.status != 422, path
            if got.status >= 400:
                error = got.json()["error"]
                anthropic = path.startswith("/v1/messages")
                wanted = {"type", "message"} if anthropic else {"message", "type", "param", "code"}
                assert set(error) == wanted, path
                refused += 1
        assert refused > 20

    served(test)


def test_a_body_of_many_megabytes_is_served() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 8_000_000}}
    body = chat(max_tokens=1)
    body["messages"][0]["content"] = [{"type": "text", "text": "What?"}, image]

    async def test(client: AsgiClient, state: AppState) -> int | None:
        return (await client.post(CHAT, body)).status

    assert served(test) == 200


def test_a_prefix_longer_than_a_chunk_is_found_whole() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        body = {"prompt": list(range(1000, 1640)), "max_tokens": 1}
        await client.post(TEXT, body)
        usage = (await client.post(TEXT, body)).json()["usage"]
        # All blocks of 16 but the last: one token at least is computed anew.
        assert usage["prompt_tokens_details"]["cached_tokens"] == 640 - 16

    served(test, max_num_batched_tokens=64)


def test_under_kv_pressure_all_requests_end_with_few_preemptions_each() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        bodies = [
            {"prompt": list(range(at * 1000, at * 1000 + 60)), "max_tokens": 80, "ignore_eos": True}
            for at in range(24)
        ]
        opened = [
            client.open("POST", TEXT, body, {"X-Request-Id": f"r{at}"}) for at, body in enumerate(bodies)
        ]
        for exchange in opened:
            got = (await exchange.finished()).json()
            assert got["usage"]["completion_tokens"] == 80
            assert got["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, "no prompt is like another"
        counts = [
            (await client.get(f"/admin/requests/r{at}")).json()["preemptions"] for at in range(len(bodies))
        ]
        assert sum(counts) > 0
        assert max(counts) <= 4
        samples, _ = parse((await client.get("/metrics")).body.decode())
        assert total(samples, "vllm:num_preemptions_total") == sum(counts)
        # What a preempted request finds of itself is no hit of the prefix cache.
        assert total(samples, "vllm:prefix_cache_hits_total") == 0
        assert total(samples, "vllm:prompt_tokens_cached_total") == 0

    served(test, num_gpu_blocks_override=40, max_model_len=600)


def test_leaving_the_queue_harms_no_running_request() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        running = client.open("POST", CHAT, chat(max_tokens=200, ignore_eos=True, stream=True))
        await running.wait_for_bodies(1)
        queued = [client.open("POST", CHAT, chat(f"Number {at}", max_tokens=5)) for at in range(3)]
        while len(state.dispatcher) < 4:  # noqa: ASYNC110 # no event
            await asyncio.sleep(0)
        queued[1].hang_up()
        await queued[1].finished()
        assert not running.complete
        tokens = [c for r in (await running.finished()).records()[:-1] for c in r["choices"]]
        assert len(tokens) == 201
        for exchange in (queued[0], queued[2]):
            assert (await exchange.finished()).json()["usage"]["completion_tokens"] == 5

    served(test, max_num_seqs=1, speedup_ratio=50.0)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_limit_over_the_window_is_refused_with_both_numbers(name: str, stream: bool) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        got = await client.post(CHAT, chat() | {"stream": stream, name: 300})
        assert got.status == 400
        message = got.json()["error"]["message"]
        assert message.startswith(
            "This model's maximum context length is 256 tokens. However, you requested 3"
        )
        assert "300 in the completion" in message

    served(test, max_model_len=256)


@pytest.mark.parametrize("profile", ["vllm", "openai"])
def test_a_tool_call_that_is_cut_says_length(profile: str) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        body = chat(tools=[TOOL], tool_choice="required", max_tokens=8)
        whole = (await client.post(CHAT, body)).json()["choices"][0]
        assert whole["finish_reason"] == "length"
        assert whole["message"]["tool_calls"][0]["function"]["name"] == "f"
        streamed = await client.post(CHAT, {**body, "stream": True})
        reasons = [c["finish_reason"] for r in streamed.records()[:-1] for c in r["choices"]]
        assert reasons[-1] == "length"
        assert set(reasons[:-1]) == {None}

    served(test, wire_profile=profile)


def test_a_stop_string_does_not_leak_from_reasoning_either() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        body = chat(seed=3, max_tokens=200)
        full = (await client.post(CHAT, body)).json()["choices"][0]["message"]
        for part in (full["reasoning_content"], full["content"]):
            stop = part[12:20]
            got = await client.post(CHAT, {**body, "stop": [stop], "stream": True})
            deltas = [c["delta"] for r in got.records()[:-1] for c in r["choices"]]
            for field in ("reasoning_content", "content"):
                said = "".join(delta.get(field) or "" for delta in deltas)
                assert stop not in said
                assert full[field].startswith(said)

    served(test, reasoning={"thinking_ratio": 0.5})


def test_logprobs_need_no_top_logprobs() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        got = (await client.post(CHAT, chat(logprobs=True, max_tokens=3))).json()["choices"][0]
        assert len(got["logprobs"]["content"]) == 3

    served(test)


@pytest.mark.e2e
@pytest.mark.parametrize("decode_block_size", [16, 64], ids=["same blocks", "other blocks"])
def test_a_handoff_counts_each_prompt_token_once_whatever_the_block_sizes(decode_block_size: int) -> None:
    body = {"prompt": list(range(5000, 5200)), "max_tokens": 12, "ignore_eos": True}
    fast: dict[str, Any] = {"speedup_ratio": 50.0}
    with (
        LiveServer(disaggregation_mode="prefill", block_size=16, **fast) as prefill,
        LiveServer(disaggregation_mode="decode", block_size=decode_block_size, **fast) as decode,
    ):
        cached = []
        for at in range(2):
            first = toy_proxy_prefill(prefill.url, TEXT, body, f"r{at}").json()
            cached.append(first["usage"]["prompt_tokens_details"]["cached_tokens"])
            sent = body | {"kv_transfer_params": first["kv_transfer_params"]}
            answer = httpx.post(decode.url + TEXT, json=sent, timeout=30)
            assert answer.status_code == 200, answer.text
            assert answer.json()["usage"]["prompt_tokens"] == 200
            assert answer.json()["usage"]["completion_tokens"] == 12
            assert_drained(prefill, decode)
        sources = {
            name: [
                int(
                    total(
                        parse(httpx.get(f"{server.url}/metrics").text)[0],
                        "vllm:prompt_tokens_by_source_total",
                        source=name,
                    )
                )
                for server in (prefill, decode)
            ]
            for name in ("local_compute", "local_cache_hit", "external_kv_transfer")
        }
    assert cached == [0, 192]
    assert sources["local_cache_hit"][0] == 192
    assert sources["local_compute"] == [208, 0]
    assert [sum(values) for values in zip(*sources.values(), strict=True)] == [400, 400]
