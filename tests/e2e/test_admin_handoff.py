"""The handoff commands by hand, whole handoffs, and cancelling, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.harness.live_server import LiveServer
from tests.harness.pd import active_blocks, assert_drained, eventually

pytestmark = pytest.mark.e2e

FAST: dict[str, Any] = {
    "timing_model": {"type": "fixed", "prefill_ms": 3, "decode_ms": 1},
    "num_gpu_blocks_override": 64,
    "kv_bytes_per_token": 1000,
}
HI = {"prompt": "Hello there, how are you today? " * 20, "max_tokens": 4, "ignore_eos": True}


@pytest.fixture(scope="module")
def prefill() -> Iterator[LiveServer]:
    with LiveServer(disaggregation_mode="prefill", data_parallel_size=2, **FAST) as server:
        yield server


@pytest.fixture(scope="module")
def decode() -> Iterator[LiveServer]:
    with LiveServer(disaggregation_mode="decode", **FAST) as server:
        yield server


@pytest.fixture(scope="module")
def aggregated() -> Iterator[LiveServer]:
    with LiveServer(**FAST) as server:
        yield server


@pytest.fixture(autouse=True)
def drained(prefill: LiveServer, decode: LiveServer) -> Iterator[None]:
    yield
    assert_drained(prefill, decode)


def tell(server: LiveServer, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/admin/{path}", json=body, timeout=20)


def state_of(server: LiveServer, handoff_id: str) -> str:
    state: str = httpx.get(f"{server.url}/admin/handoffs/{handoff_id}").json()["state"]
    return state


def wait_for(server: LiveServer, handoff_id: str, state: str) -> None:
    eventually(lambda: state_of(server, handoff_id) == state, f"{handoff_id} did not get {state}")


def test_source_by_hand_is_held_until_released(prefill: LiveServer) -> None:
    begun = tell(prefill, "handoff/prefill", request=HI, handoff_id="a1")
    assert (begun.status_code, begun.json()["result"], begun.json()["handoff_id"]) == (202, "submitted", "a1")
    wait_for(prefill, "a1", "held")
    assert active_blocks(prefill) > 0
    assert tell(prefill, "handoff/source/release", handoff_id="a1").json() == {"result": "applied"}
    assert tell(prefill, "handoff/source/release", handoff_id="a1").json() == {"result": "noop"}
    assert state_of(prefill, "a1") == "done"


def test_destination_by_hand_decodes_once_activated(decode: LiveServer) -> None:
    begun = tell(decode, "handoff/destination/reserve", request=HI, handoff_id="b1")
    assert (begun.status_code, begun.json()["result"]) == (202, "destination_accepted")
    wait_for(decode, "b1", "reserved")
    assert tell(decode, "handoff/destination/activate", handoff_id="b1").json() == {"result": "applied"}
    wait_for(decode, "b1", "done")
    record = httpx.get(f"{decode.url}/admin/handoffs/b1").json()
    assert record["outcome"] == "completed"
    assert "completed after 4 tokens" in [step["event"] for step in record["timeline"]]


@pytest.mark.parametrize("side", ["source", "destination"])
def test_cancel_frees_either_side(prefill: LiveServer, side: str) -> None:
    begin = "prefill" if side == "source" else "destination/reserve"
    tell(prefill, f"handoff/{begin}", request=HI, handoff_id=f"c-{side}")
    wait_for(prefill, f"c-{side}", "held" if side == "source" else "reserved")
    assert tell(prefill, f"handoff/{side}/cancel", handoff_id=f"c-{side}").json() == {"result": "applied"}
    assert httpx.get(f"{prefill.url}/admin/handoffs/c-{side}").json()["outcome"] == "cancelled"


@pytest.mark.parametrize(
    "path",
    [
        "handoff/source/release",
        "handoff/source/cancel",
        "handoff/destination/activate",
        "handoff/destination/cancel",
    ],
)
def test_unknown_id_is_a_noop_and_an_aggregated_worker_a_409(
    prefill: LiveServer, aggregated: LiveServer, path: str
) -> None:
    assert tell(prefill, path, handoff_id="nobody").json() == {"result": "noop"}
    refused = tell(aggregated, path, handoff_id="nobody")
    assert refused.status_code == 409
    assert "--disaggregation-mode" in refused.json()["error"]["message"]


@pytest.mark.parametrize("path", ["handoff/prefill", "handoff/destination/reserve", "handoffs"])
def test_new_handoff_on_an_aggregated_worker_is_a_409(aggregated: LiveServer, path: str) -> None:
    assert tell(aggregated, path, request=HI).status_code == 409


def test_duplicate_id_is_a_409_and_the_first_is_unharmed(prefill: LiveServer) -> None:
    tell(prefill, "handoff/prefill", request=HI, handoff_id="d1", request_id="dr")
    wait_for(prefill, "d1", "held")
    assert tell(prefill, "handoff/prefill", request=HI, handoff_id="d1").status_code == 409
    assert tell(prefill, "handoff/destination/reserve", request=HI, request_id="dr").status_code == 409
    assert state_of(prefill, "d1") == "held"
    assert tell(prefill, "handoff/source/release", handoff_id="d1").json() == {"result": "applied"}


@pytest.mark.parametrize("path", ["handoff/prefill", "handoff/destination/reserve", "handoffs"])
@pytest.mark.parametrize(
    ("request_body", "sentence"),
    [
        ({"prompt": "long " * 5000}, "maximum context length is 4096"),
        ({}, "no prompt"),
        ({"prompt": "a", "messages": []}, "prompt and messages"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"messages": [{"role": "nobody", "content": "x"}]}, "role"),
    ],
)
def test_request_that_can_not_be_is_a_400(
    prefill: LiveServer, path: str, request_body: dict[str, Any], sentence: str
) -> None:
    refused = tell(prefill, path, request=request_body)
    assert refused.status_code == 400
    assert sentence in refused.json()["error"]["message"]


def test_rank_that_does_not_exist_is_a_400(prefill: LiveServer) -> None:
    assert tell(prefill, "handoff/prefill", request=HI, dp_rank=7).status_code == 400


def test_unknown_handoff_is_a_404(prefill: LiveServer) -> None:
    assert httpx.get(f"{prefill.url}/admin/handoffs/nobody").status_code == 404


def test_reserve_in_mid_pass_is_accepted_at_once_and_granted_at_the_boundary() -> None:
    slow: dict[str, Any] = {"timing_model": {"type": "fixed", "prefill_ms": 2000, "decode_ms": 2000}}
    with LiveServer(disaggregation_mode="decode", **slow) as decode:
        now_ms = decode.state.engine.now_ms
        tell(decode, "handoff/destination/reserve", request={**HI, "max_tokens": 1}, handoff_id="first")
        wait_for(decode, "first", "reserved")
        tell(decode, "handoff/destination/activate", handoff_id="first")
        eventually(lambda: decode.state.engine.metrics(0).waiting_requests == 1, "nothing was activated")
        activated_ms = now_ms()
        tell(decode, "handoff/destination/reserve", request=HI, handoff_id="second")
        assert now_ms() - activated_ms < 1900, "too slow a machine for this test"
        assert state_of(decode, "second") == "pending"
        # Sent in the pass, applied at its end, in order: before the grant, so there is nothing to activate.
        assert tell(decode, "handoff/destination/activate", handoff_id="second").json() == {"result": "noop"}
        assert now_ms() - activated_ms > 1900
        wait_for(decode, "second", "reserved")
        assert tell(decode, "handoff/destination/cancel", handoff_id="second").json() == {"result": "applied"}
        assert_drained(decode)


@pytest.mark.parametrize("order", ["source_first", "destination_first"])
@pytest.mark.parametrize("where", ["two ranks", "two servers", "local destination"])
def test_whole_handoff_completes_in_either_order(
    prefill: LiveServer, decode: LiveServer, aggregated: LiveServer, order: str, where: str
) -> None:
    by, source, destination = {
        "two ranks": (prefill, {"dp_rank": 0}, {"dp_rank": 1}),
        "two servers": (aggregated, {"url": prefill.url}, {"url": decode.url}),
        "local destination": (decode, {"url": prefill.url}, {}),
    }[where]
    answer = tell(by, "handoffs", request=HI, order=order, source=source, destination=destination)
    record = answer.json()
    assert (answer.status_code, record["outcome"], record["order"]) == (200, "completed", order)
    events = [step["event"] for step in record["timeline"]]
    assert (events.index("source held") < events.index("destination reserved")) == (order == "source_first")
    assert "complete: completed" in events


def test_whole_handoff_to_a_dead_server_fails_and_frees_the_source(prefill: LiveServer) -> None:
    answer = tell(prefill, "handoffs", request=HI, destination={"url": "http://127.0.0.1:1"})
    record = answer.json()
    assert record["outcome"] == "failed"
    assert "http://127.0.0.1:1" in record["reason"]


@pytest.mark.parametrize("url", ["http://[::1", "http://a:port", "http://a\x01b"])
def test_whole_handoff_to_what_is_no_address_is_refused(prefill: LiveServer, url: str) -> None:
    answer = tell(prefill, "handoffs", request=HI, destination={"url": url})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "destination.url")
    assert "must be a URL such as" in answer.json()["error"]["message"]


def test_whole_handoff_need_not_be_waited_for(prefill: LiveServer) -> None:
    answer = tell(prefill, "handoffs", request=HI, handoff_id="w1", wait=False, destination={"dp_rank": 1})
    assert answer.status_code == 202
    wait_for(prefill, "w1", "done")


def test_cancelled_request_frees_its_blocks_on_any_worker(aggregated: LiveServer) -> None:
    body = {"prompt": "x", "max_tokens": 3000, "ignore_eos": True, "stream": True, "request_id": "long"}
    with httpx.stream("POST", f"{aggregated.url}/v1/completions", json=body, timeout=20) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert tell(aggregated, "requests/long/cancel").json() == {"result": "applied"}
        rest = list(lines)
    assert any("was cancelled" in line for line in rest)
    assert rest[-2] == "data: [DONE]" or rest[-1] == "data: [DONE]"
    assert active_blocks(aggregated) == 0
    assert tell(aggregated, "requests/long/cancel").json() == {"result": "noop"}
