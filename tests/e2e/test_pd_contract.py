"""vLLM's P/D contract between two real servers, driven as vLLM's own proxy drives it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from tests.harness.live_server import LiveServer
from tests.harness.pd import active_blocks, assert_drained, eventually, service_of, toy_proxy_prefill

pytestmark = pytest.mark.e2e

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
BODY: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Tell me of the sea and of its many ships. " * 10}],
    "max_tokens": 12,
    "ignore_eos": True,
    "seed": 7,
}
FAST: dict[str, Any] = {"timing_model": {"type": "fixed", "prefill_ms": 2, "decode_ms": 1}}
SLOW_LINK: dict[str, Any] = {"kv_bytes_per_token": 10_000_000, "kv_transfer_bandwidth": 1.0}


@pytest.fixture(scope="module")
def prefill() -> Iterator[LiveServer]:
    with LiveServer(disaggregation_mode="prefill", **FAST) as server:
        yield server


@pytest.fixture(scope="module")
def decode() -> Iterator[LiveServer]:
    with LiveServer(disaggregation_mode="decode", **FAST) as server:
        yield server


@pytest.fixture(scope="module")
def recomputing() -> Iterator[LiveServer]:
    with LiveServer(disaggregation_mode="decode", kv_load_failure_policy="recompute", **FAST) as server:
        yield server


@pytest.fixture(autouse=True)
def drained(prefill: LiveServer, decode: LiveServer) -> Iterator[None]:
    yield
    assert_drained(prefill, decode)


def params_of(server: LiveServer, body: dict[str, Any] = BODY, path: str = CHAT) -> dict[str, Any]:
    answer = toy_proxy_prefill(server.url, path, body)
    assert answer.status_code == 200, answer.text
    params: dict[str, Any] = answer.json()["kv_transfer_params"]
    return params


def give_back(server: LiveServer, params: dict[str, Any]) -> None:
    httpx.post(f"{server.url}/pd/holds/{params['remote_request_id']}/cancel")


def ask(server: LiveServer, params: dict[str, Any] | None, path: str = CHAT, **more: Any) -> httpx.Response:
    body = {**BODY, **more}
    if params is not None:
        body["kv_transfer_params"] = params
    return httpx.post(server.url + path, json=body, timeout=30)


def test_prefill_answers_one_token_and_the_parameters_of_the_contract(prefill: LiveServer) -> None:
    answer = toy_proxy_prefill(prefill.url, CHAT, BODY).json()
    params = answer["kv_transfer_params"]
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 1
    assert (params["do_remote_prefill"], params["do_remote_decode"]) == (True, False)
    assert params["remote_engine_id"] == service_of(prefill).engine_id
    assert (params["remote_host"], params["remote_port"]) == ("127.0.0.1", prefill.port)
    assert len(params["remote_block_ids"]) == -(-answer["usage"]["prompt_tokens"] // 64)
    eventually(lambda: service_of(prefill).holds.held == 1, "nothing is held")
    assert active_blocks(prefill) == len(params["remote_block_ids"])
    give_back(prefill, params)


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_streamed_decode_says_what_one_server_alone_would_say(
    prefill: LiveServer, decode: LiveServer, path: str
) -> None:
    body = BODY if path == CHAT else {"prompt": "Once upon a time " * 30, **BODY}
    params = params_of(prefill, body, path)
    alone = httpx.post(decode.url + path, json=body, timeout=30).json()
    streamed = httpx.post(
        decode.url + path,
        json={
            **body,
            "stream": True,
            "stream_options": {"include_usage": True},
            "kv_transfer_params": params,
        },
        timeout=30,
    )
    records = [orjson.loads(line[6:]) for line in streamed.text.split("\n\n") if line.startswith("data: {")]
    choices = [choice for record in records for choice in record["choices"]]
    if path == CHAT:
        text = "".join(choice["delta"].get("content") or "" for choice in choices)
        assert text == alone["choices"][0]["message"]["content"]
    else:
        assert "".join(choice["text"] for choice in choices) == alone["choices"][0]["text"]
    assert streamed.text.endswith("data: [DONE]\n\n")
    usage = records[-1]["usage"]
    assert usage["completion_tokens"] == 12
    assert usage["prompt_tokens"] == alone["usage"]["prompt_tokens"]


def test_taken_source_is_released_and_counted(prefill: LiveServer, decode: LiveServer) -> None:
    before = service_of(decode).snapshot()["handoffs"]["completed"]
    released = service_of(prefill).snapshot()["sources_ended"].get("released", 0)
    params = params_of(prefill)
    assert ask(decode, params).status_code == 200
    eventually(lambda: len(service_of(prefill).holds) == 0, "the source is still held")
    assert service_of(prefill).snapshot()["sources_ended"]["released"] == released + 1
    eventually(
        lambda: service_of(decode).snapshot()["handoffs"]["completed"] == before + 1,
        "the handoff is not counted",
    )


@pytest.mark.parametrize("n", [2, 3])
def test_every_choice_gets_its_tokens(prefill: LiveServer, decode: LiveServer, n: int) -> None:
    answer = ask(decode, params_of(prefill), n=n).json()
    assert len(answer["choices"]) == n
    assert answer["usage"]["completion_tokens"] == 12 * n


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


WRONG: dict[str, tuple[dict[str, Any], int, str]] = {
    "foreign engine": (
        {"remote_engine_id": "other"},
        400,
        "remote_engine_id other is not this prefill server",
    ),
    "unknown request": ({"remote_request_id": "nobody"}, 400, "nobody is not known to the prefill server"),
    "no port": ({"remote_port": None}, 400, "remote_port is None"),
    "port out of range": ({"remote_port": 70000}, 400, "remote_port is 70000"),
    "host with a path": ({"remote_host": "a/b"}, 400, "remote_host is 'a/b'"),
    "host that is no name": ({"remote_host": "a\x01b"}, 400, "remote_host is 'a\\x01b'"),
    "host that is no address": ({"remote_host": "::g"}, 400, "remote_host is '::g'"),
    "no blocks": ({"remote_block_ids": []}, 400, "remote_block_ids is []"),
    "id with a slash": ({"remote_request_id": "a/b"}, 400, "remote_request_id is 'a/b'"),
    "nobody listens": ({"remote_port": -1}, 502, "gave no answer"),
}


def wrong(params: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return params | change | ({"remote_port": closed_port()} if change.get("remote_port") == -1 else {})


@pytest.mark.parametrize("case", WRONG)
def test_wrong_parameters_are_refused_with_the_one_that_is_wrong(
    prefill: LiveServer, decode: LiveServer, case: str
) -> None:
    change, status, sentence = WRONG[case]
    params = params_of(prefill)
    answer = ask(decode, wrong(params, change))
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, "kv_transfer_params")
    assert sentence in answer.json()["error"]["message"]
    assert ask(decode, params).status_code == 200, "the true owner was harmed"


@pytest.mark.parametrize("case", WRONG)
def test_wrong_parameters_are_computed_locally_where_that_is_the_policy(
    prefill: LiveServer, recomputing: LiveServer, case: str
) -> None:
    before = service_of(recomputing).snapshot()["kv_load_recomputed"]
    params = params_of(prefill)
    answer = ask(recomputing, wrong(params, WRONG[case][0]))
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 12
    assert service_of(recomputing).snapshot()["kv_load_recomputed"] == before + 1
    give_back(prefill, params)
    assert_drained(recomputing)


def test_parameters_used_twice_are_refused(prefill: LiveServer, decode: LiveServer) -> None:
    params = params_of(prefill)
    assert ask(decode, params).status_code == 200
    eventually(lambda: len(service_of(prefill).holds) == 0, "the source is still held")
    second = ask(decode, params)
    assert second.status_code == 400
    assert "was taken by an earlier decode request" in second.json()["error"]["message"]


def test_parameters_of_another_prompt_are_refused(prefill: LiveServer, decode: LiveServer) -> None:
    params = params_of(prefill)
    answer = ask(decode, params, messages=[{"role": "user", "content": "Something else."}])
    assert answer.status_code == 400
    assert "is of another prompt" in answer.json()["error"]["message"]
    give_back(prefill, params)


@pytest.mark.parametrize(
    "params", [{"do_remote_decode": True, "do_remote_prefill": True}, {"do_remote_decode": "yes"}]
)
def test_contradictory_directions_are_refused(prefill: LiveServer, params: dict[str, Any]) -> None:
    assert ask(prefill, params).status_code == 400


@pytest.mark.parametrize("params", [{}, {"do_remote_decode": False, "do_remote_prefill": None}])
def test_parameters_that_ask_for_nothing_are_a_plain_request(
    decode: LiveServer, params: dict[str, Any]
) -> None:
    assert ask(decode, params).json()["usage"]["completion_tokens"] == 12


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_plain_request_to_a_role_server_pays_for_both_phases(role: str) -> None:
    slow: dict[str, Any] = {"timing_model": {"type": "fixed", "prefill_ms": 150, "decode_ms": 50}}
    with LiveServer(disaggregation_mode=role, **slow) as server:
        began_ms = server.state.engine.now_ms()
        assert ask(server, None, max_tokens=3).status_code == 200
        assert server.state.engine.now_ms() - began_ms >= 150 + 2 * 50


def test_aggregated_server_says_how_to_start_it() -> None:
    with LiveServer(**FAST) as server:
        answer = ask(server, {"do_remote_decode": True})
        assert answer.status_code == 400
        assert "--disaggregation-mode prefill" in answer.json()["error"]["message"]


def test_hold_that_nobody_comes_for_expires_and_is_counted() -> None:
    with (
        LiveServer(disaggregation_mode="prefill", handoff_session_timeout_ms=50.0, **FAST) as prefill,
        LiveServer(disaggregation_mode="decode", **FAST) as decode,
    ):
        params = params_of(prefill)
        eventually(lambda: active_blocks(prefill) == 0, "the hold did not expire")
        figures = httpx.get(f"{prefill.url}/admin/metrics").json()["handoffs"]
        assert (figures["held_sources"], figures["sources_ended"]) == (0, {"expired": 1})
        late = ask(decode, params)
        assert late.status_code == 400
        assert "expired before a decode request came" in late.json()["error"]["message"]
        assert_drained(prefill, decode)


def test_transfer_takes_its_modelled_time_and_no_token_comes_before() -> None:
    link = {"kv_bytes_per_token": 1_000_000, "kv_transfer_bandwidth": 10.0}
    with (
        LiveServer(disaggregation_mode="prefill", **FAST, **link) as prefill,
        LiveServer(disaggregation_mode="decode", **FAST, **link) as decode,
    ):
        params = params_of(prefill)
        assert ask(decode, params).status_code == 200
        assert_drained(prefill, decode)
        record = httpx.get(f"{decode.url}/admin/handoffs").json()["handoffs"][0]
        at = {step["event"]: step["at_ms"] for step in record["timeline"]}
        prompt_tokens = toy_proxy_prefill(prefill.url, CHAT, BODY).json()["usage"]["prompt_tokens"]
        modelled_ms = prompt_tokens * 1_000_000 / 10e9 * 1000
        assert at["transfer completed"] - at["destination reserved"] >= modelled_ms
        assert service_of(decode).snapshot()["transferred_tokens"] == prompt_tokens


def test_destination_missing_moves_only_what_the_destination_lacks() -> None:
    mode: dict[str, Any] = {"kv_transfer_timing_mode": "destination_missing", "kv_bytes_per_token": 1000}
    with (
        LiveServer(disaggregation_mode="prefill", **FAST, **mode) as prefill,
        LiveServer(disaggregation_mode="decode", **FAST, **mode) as decode,
    ):
        moved = []
        for _ in range(2):
            assert ask(decode, params_of(prefill)).status_code == 200
            assert_drained(prefill, decode)
            moved.append(service_of(decode).snapshot()["transferred_tokens"])
        assert moved[1] - moved[0] == 64 < moved[0]


def test_client_that_leaves_during_the_transfer_frees_both_sides() -> None:
    with (
        LiveServer(disaggregation_mode="prefill", **FAST, **SLOW_LINK) as prefill,
        LiveServer(disaggregation_mode="decode", **FAST, **SLOW_LINK) as decode,
    ):
        params = params_of(prefill)
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(decode.url + CHAT, json={**BODY, "kv_transfer_params": params}, timeout=0.3)
        assert_drained(prefill, decode)
        assert service_of(decode).snapshot()["handoffs"]["cancelled"] == 1


def test_client_that_leaves_during_the_prefill_leaves_nothing_held(decode: LiveServer) -> None:
    slow: dict[str, Any] = {"timing_model": {"type": "fixed", "prefill_ms": 600, "decode_ms": 1}}
    with LiveServer(disaggregation_mode="prefill", **slow) as prefill:
        with pytest.raises(httpx.ReadTimeout):
            body = {**BODY, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True}}
            httpx.post(prefill.url + CHAT, json=body, timeout=0.2)
        assert_drained(prefill)


def test_hold_given_back_during_the_transfer_is_a_true_error() -> None:
    with (
        LiveServer(disaggregation_mode="prefill", **FAST, **SLOW_LINK) as prefill,
        LiveServer(disaggregation_mode="decode", **FAST, **SLOW_LINK) as decode,
    ):
        params = params_of(prefill)
        answers: list[httpx.Response] = []
        client = threading.Thread(target=lambda: answers.append(ask(decode, params)))
        client.start()
        eventually(lambda: active_blocks(decode) > 0, "nothing was reserved")
        give_back(prefill, params)
        client.join(20)
        assert answers[0].status_code == 502
        assert "was lost during the transfer" in answers[0].json()["error"]["message"]
        assert_drained(prefill, decode)


def test_admin_cancel_during_the_transfer_ends_the_request() -> None:
    with (
        LiveServer(disaggregation_mode="prefill", **FAST, **SLOW_LINK) as prefill,
        LiveServer(disaggregation_mode="decode", **FAST, **SLOW_LINK) as decode,
    ):
        params = params_of(prefill)
        answers: list[httpx.Response] = []
        client = threading.Thread(target=lambda: answers.append(ask(decode, params, request_id="mine")))
        client.start()
        eventually(lambda: active_blocks(decode) > 0, "nothing was reserved")
        assert httpx.post(f"{decode.url}/admin/requests/mine/cancel").json() == {"result": "applied"}
        client.join(20)
        assert answers[0].status_code == 410
        assert_drained(prefill, decode)


def test_server_that_stops_ends_a_transfer_with_a_true_error() -> None:
    with LiveServer(disaggregation_mode="prefill", **FAST, **SLOW_LINK) as prefill:
        answers: list[httpx.Response] = []
        with LiveServer(disaggregation_mode="decode", **FAST, **SLOW_LINK) as decode:
            params = params_of(prefill)
            client = threading.Thread(target=lambda: answers.append(ask(decode, params)))
            client.start()
            eventually(lambda: active_blocks(decode) > 0, "nothing was reserved")
        client.join(20)
        assert answers[0].status_code == 503
        assert_drained(prefill)
