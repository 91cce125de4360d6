"""The list of vLLM's metric families that we claim, written out; docs/metrics.md says which versions'."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.metrics.families import token_buckets, vllm_families
from app.state import AppState
from tests.harness.asgi_stream import AsgiClient
from tests.unit.app.serving_fixtures import served

ENGINE = {"model_name", "engine"}
TOKENS_1000: list[float] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
ITL = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80]
TTFT = [
    *[0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5],
    *[10, 20, 40, 80, 160, 640, 2560],
]
LATENCY = [
    *[0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60],
    *[120, 240, 480, 960, 1920, 7680],
]

# name as scraped -> type, labels beside model_name and engine, buckets
VLLM_0_20: dict[str, tuple[str, set[str], list[float]]] = {
    "vllm:num_requests_running": ("gauge", set(), []),
    "vllm:num_requests_waiting": ("gauge", set(), []),
    "vllm:num_requests_waiting_by_reason": ("gauge", {"reason"}, []),
    "vllm:engine_sleep_state": ("gauge", {"sleep_state"}, []),
    "vllm:kv_cache_usage_perc": ("gauge", set(), []),
    "vllm:prefix_cache_queries_total": ("counter", set(), []),
    "vllm:prefix_cache_hits_total": ("counter", set(), []),
    "vllm:external_prefix_cache_queries_total": ("counter", set(), []),
    "vllm:external_prefix_cache_hits_total": ("counter", set(), []),
    "vllm:mm_cache_queries_total": ("counter", set(), []),
    "vllm:mm_cache_hits_total": ("counter", set(), []),
    "vllm:num_preemptions_total": ("counter", set(), []),
    "vllm:prompt_tokens_total": ("counter", set(), []),
    "vllm:prompt_tokens_by_source_total": ("counter", {"source"}, []),
    "vllm:prompt_tokens_cached_total": ("counter", set(), []),
    "vllm:generation_tokens_total": ("counter", set(), []),
    "vllm:request_success_total": ("counter", {"finished_reason"}, []),
    "vllm:request_prompt_tokens": ("histogram", set(), TOKENS_1000),
    "vllm:request_generation_tokens": ("histogram", set(), TOKENS_1000),
    "vllm:iteration_tokens_total": (
        "histogram",
        set(),
        [1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384],
    ),
    "vllm:request_max_num_generation_tokens": ("histogram", set(), TOKENS_1000),
    "vllm:request_params_n": ("histogram", set(), [1, 2, 5, 10, 20]),
    "vllm:request_params_max_tokens": ("histogram", set(), TOKENS_1000),
    "vllm:time_to_first_token_seconds": ("histogram", set(), TTFT),
    "vllm:inter_token_latency_seconds": ("histogram", set(), ITL),
    "vllm:request_time_per_output_token_seconds": ("histogram", set(), ITL),
    "vllm:e2e_request_latency_seconds": ("histogram", set(), LATENCY),
    "vllm:request_queue_time_seconds": ("histogram", set(), LATENCY),
    "vllm:request_inference_time_seconds": ("histogram", set(), LATENCY),
    "vllm:request_prefill_time_seconds": ("histogram", set(), LATENCY),
    "vllm:request_decode_time_seconds": ("histogram", set(), LATENCY),
    "vllm:request_prefill_kv_computed_tokens": ("histogram", set(), TOKENS_1000),
}
GIVEN_UP: dict[str, tuple[str, set[str], list[float]]] = {
    "vllm:gpu_cache_usage_perc": ("gauge", set(), []),
    "vllm:gpu_prefix_cache_queries_total": ("counter", set(), []),
    "vllm:gpu_prefix_cache_hits_total": ("counter", set(), []),
    "vllm:time_per_output_token_seconds": ("histogram", set(), ITL),
}
NOT_PER_MODEL = {"vllm:cache_config_info", "vllm:lora_requests_info"}
LABEL_VALUES = {
    "reason": {"capacity", "deferred"},
    "sleep_state": {"awake", "weights_offloaded", "discard_all"},
    "source": {"local_compute", "local_cache_hit", "external_kv_transfer"},
    "finished_reason": {"stop", "length", "abort", "error", "repetition"},
}


def scraped(**settings: object) -> str:
    async def test(client: AsgiClient, state: AppState) -> str:
        answer = await client.get("/metrics")
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        return answer.body.decode()

    return served(test, max_model_len=1000, **settings)


def shape(text: str) -> dict[str, tuple[str, set[str], list[float]]]:
    """Every vllm: family of a scrape but those of NOT_PER_MODEL, by its name in the text."""
    found = {}
    for family in text_string_to_metric_families(text):
        if not family.name.startswith("vllm:") or family.name in NOT_PER_MODEL:
            continue
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert labels >= ENGINE, name
        for label in labels - ENGINE:
            assert {sample.labels[label] for sample in family.samples} == LABEL_VALUES[label]
        bounds = {float(sample.labels["le"]) for sample in family.samples if "le" in sample.labels}
        found[name] = (family.type, labels - ENGINE, sorted(bounds - {float("inf")}))
    return found


def test_default_scrape_has_the_claimed_families_and_no_other() -> None:
    assert shape(scraped()) == VLLM_0_20


def test_hidden_names_are_there_on_request() -> None:
    assert shape(scraped(show_hidden_metrics_for_version="0.10")) == VLLM_0_20 | GIVEN_UP


def test_each_rank_has_its_own_samples() -> None:
    families = {
        family.name: family for family in text_string_to_metric_families(scraped(data_parallel_size=3))
    }
    for name in ("vllm:num_requests_running", "vllm:generation_tokens", "vllm:time_to_first_token_seconds"):
        assert {sample.labels["engine"] for sample in families[name].samples} == {"0", "1", "2"}


def test_cache_config_tells_the_pool() -> None:
    families = {family.name: family for family in text_string_to_metric_families(scraped())}
    (sample,) = families["vllm:cache_config_info"].samples
    assert sample.value == 1.0
    assert "model_name" not in sample.labels
    known = {
        key: sample.labels[key] for key in ("block_size", "num_gpu_blocks", "enable_prefix_caching", "engine")
    }
    assert known == {
        "block_size": "16",
        "num_gpu_blocks": "16384",
        "enable_prefix_caching": "True",
        "engine": "0",
    }


def test_lora_info_is_there_with_lora_only() -> None:
    assert "vllm:lora_requests_info" not in scraped()
    families = {f.name: f for f in text_string_to_metric_families(scraped(enable_lora=True, max_loras=3))}
    (sample,) = families["vllm:lora_requests_info"].samples
    assert sample.labels == {"max_lora": "3", "running_lora_adapters": "", "waiting_lora_adapters": ""}


@pytest.mark.parametrize(("most", "last"), [(1, 1.0), (99, 50.0), (100, 100.0), (131072, 100000.0)])
def test_token_buckets_end_at_the_longest_length(most: int, last: float) -> None:
    assert token_buckets(most)[-1] == last


def test_names_are_declared_once() -> None:
    names = [family.name for family in vllm_families(1000, lora=True, hidden=True)]
    assert len(names) == len(set(names))
