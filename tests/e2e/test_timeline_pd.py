"""A handoff between two servers, as both servers' timelines, metrics and feeds tell it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from app.dashboard.feed import frame
from tests.harness.live_server import LiveServer
from tests.harness.pd import assert_drained, toy_proxy_prefill
from tests.harness.scrape import parse, total

pytestmark = pytest.mark.e2e

PATH = "/v1/completions"
SETTINGS: dict[str, Any] = {
    "speedup_ratio": 20.0,
    "block_size": 16,
    "kv_bytes_per_token": 100_000,
    "kv_transfer_bandwidth": 0.5,
}


def scrape(server: LiveServer) -> Any:
    return parse(httpx.get(server.url + "/metrics", timeout=10).text)[0]


def test_transfer_has_its_part_and_its_tokens() -> None:
    body = {"prompt": " ".join(f"word{at}" for at in range(100)), "max_tokens": 12, "ignore_eos": True}
    with (
        LiveServer(disaggregation_mode="prefill", **SETTINGS) as prefill,
        LiveServer(disaggregation_mode="decode", **SETTINGS) as decode,
    ):
        params = toy_proxy_prefill(prefill.url, PATH, body, "one").json()["kv_transfer_params"]
        held = scrape(prefill)
        answer = httpx.post(
            decode.url + PATH,
            json=body | {"kv_transfer_params": params},
            headers={"X-Request-Id": "one", "x-mocker-explain": "1"},
            timeout=30,
        )
        assert answer.status_code == 200
        assert_drained(prefill, decode)
        source = httpx.get(prefill.url + "/admin/requests/one", timeout=10).json()
        timeline = httpx.get(decode.url + "/admin/requests/one", timeout=10).json()
        after, source_after = scrape(decode), scrape(prefill)
        seen = decode.run(lambda: frame(decode.state))

    usage = answer.json()["usage"]
    prompt = usage["prompt_tokens"]
    assert total(held, "mocker:handoff_holds") == 1
    assert total(held, "mocker:kv_blocks", state="reserved") == -(-prompt // 16)
    assert total(held, "mocker:kv_blocks", state="active") == 0
    assert (source["prompt_tokens"], source["output_tokens"]) == (prompt, 1)
    assert source["handoff"]["outcome"] == "released"

    parts = timeline["parts_ms"]
    assert round(sum(parts.values()) * 1000) == round(timeline["e2e_ms"] * 1000)
    assert parts["transfer"] > 1.0  # 100 KB a token at 0.5 GB/s, 20 times quicker
    assert parts["prefill"] == 0.0 or parts["prefill"] < parts["transfer"]
    assert timeline["external_tokens"] == prompt
    assert timeline["output_tokens"] == usage["completion_tokens"] == 12
    assert timeline["handoff"]["outcome"] == "completed"
    assert answer.headers["x-mocker-external-tokens"] == str(prompt)

    assert total(after, "vllm:prompt_tokens_by_source_total", source="external_kv_transfer") == prompt
    assert total(after, "vllm:prompt_tokens_total") == prompt
    assert total(after, "vllm:external_prefix_cache_hits_total") == prompt
    assert total(after, "vllm:generation_tokens_total") == 12
    assert total(after, "mocker:handoffs_total", outcome="completed") == 1
    assert total(after, "mocker:kv_transfer_tokens_total") == prompt
    assert total(after, "mocker:kv_transfer_bytes_total") == prompt * 100_000
    assert total(source_after, "vllm:generation_tokens_total") == 1
    assert total(source_after, "mocker:handoff_holds") == 0
    assert total(source_after, "mocker:handoff_holds_ended_total", state="released") == 1
    assert seen["handoffs"][0]["outcome"] == "completed"
    assert seen["handoff_counts"]["completed"] == 1
    assert seen["worker_type"] == "decode"
