"""What /metrics can show: name, type, labels and buckets of every family, as data.

`vllm_families` follows vLLM's own list (docs/metrics.md says which version's); `mocker_families` is ours.
Knows no values.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from msgspec import Struct

from app.lateness import BOUNDS_MS


class Kind(StrEnum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Family(Struct, frozen=True):
    """One metric. Samples of a counter are called `name` + `_total`. Label values come in this order."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...] = ()


ENGINE = ("model_name", "engine")
TTFT_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
ITL_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
LATENCY_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
# Bounds of counts are integers, which compare faster with what is counted.
ITERATION_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
PARAMS_N = (1, 2, 5, 10, 20)
LATENESS_S = tuple(bound / 1000 for bound in BOUNDS_MS)

WAITING_REASONS = ("capacity", "deferred")
SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")
TOKEN_SOURCES = ("local_compute", "local_cache_hit", "external_kv_transfer")
FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")
CACHE_CONFIG = (
    "block_size",
    "cache_dtype",
    "enable_prefix_caching",
    "gpu_memory_utilization",
    "kv_cache_max_concurrency",
    "kv_cache_memory_bytes",
    "kv_cache_size_tokens",
    "num_cpu_blocks",
    "num_gpu_blocks",
    "num_gpu_blocks_override",
    "sliding_window",
    "engine",
)


def token_buckets(most_tokens: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, ... up to `most_tokens`."""
    buckets: list[int] = []
    power = 1
    while True:
        for step in (1, 2, 5):
            if step * power > most_tokens:
                return tuple(buckets)
            buckets.append(step * power)
        power *= 10


def vllm_families(max_model_len: int, *, lora: bool, hidden: bool) -> list[Family]:
    """vLLM's families. `hidden`: also those that current versions show only on request."""
    families = [*_vllm_gauges(), *_vllm_counters(), *_vllm_histograms(token_buckets(max_model_len))]
    if lora:
        labels = ("max_lora", "waiting_lora_adapters", "running_lora_adapters")
        families.append(
            Family("vllm:lora_requests_info", Kind.GAUGE, "When these adapters were in use.", labels)
        )
    if hidden:
        families += _vllm_hidden()
    return families


def _vllm_gauges() -> list[Family]:
    return [
        _gauge("vllm:num_requests_running", "Requests in the running batch."),
        _gauge("vllm:num_requests_waiting", "Requests that wait for their admission."),
        _gauge("vllm:num_requests_waiting_by_reason", "The same, by what they wait for.", "reason"),
        _gauge("vllm:engine_sleep_state", "1 for the state the engine is in.", "sleep_state"),
        _gauge("vllm:kv_cache_usage_perc", "Share of the KV blocks in use, 0 to 1."),
        Family("vllm:cache_config_info", Kind.GAUGE, "The KV cache's configuration; always 1.", CACHE_CONFIG),
    ]


def _vllm_counters() -> list[Family]:
    return [
        _counter("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache."),
        _counter("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache."),
        _counter("vllm:external_prefix_cache_queries", "Prompt tokens asked of another server."),
        _counter("vllm:external_prefix_cache_hits", "Prompt tokens whose KV came from another server."),
        _counter("vllm:mm_cache_queries", "Multi-modal items looked up; there is no such cache here."),
        _counter("vllm:mm_cache_hits", "Multi-modal items found; there is no such cache here."),
        _counter("vllm:num_preemptions", "Times a running request lost its KV."),
        _counter("vllm:prompt_tokens", "Prompt tokens of requests whose prefill is done."),
        _counter("vllm:prompt_tokens_by_source", "The same, by where their KV came from.", "source"),
        _counter("vllm:prompt_tokens_cached", "Those that were not computed here."),
        _counter("vllm:generation_tokens", "Tokens given out."),
        _counter("vllm:request_success", "Requests that ended, by reason.", "finished_reason"),
    ]


def _vllm_histograms(tokens: Sequence[float]) -> list[Family]:
    return [
        _histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", tokens),
        _histogram("vllm:request_generation_tokens", "Generated tokens of a request.", tokens),
        _histogram(
            "vllm:iteration_tokens_total", "Tokens of a pass, computed and generated.", ITERATION_TOKENS
        ),
        _histogram(
            "vllm:request_max_num_generation_tokens", "Longest choice of a prompt, in tokens.", tokens
        ),
        _histogram("vllm:request_params_n", "Choices asked for (n).", PARAMS_N),
        _histogram("vllm:request_params_max_tokens", "max_tokens of a request.", tokens),
        _histogram("vllm:time_to_first_token_seconds", "Arrival to first token, the queue included.", TTFT_S),
        _histogram("vllm:inter_token_latency_seconds", "Between two tokens of a request.", ITL_S),
        _histogram(
            "vllm:request_time_per_output_token_seconds", "A request's decode time per later token.", ITL_S
        ),
        _histogram("vllm:e2e_request_latency_seconds", "Arrival to last token.", LATENCY_S),
        _histogram("vllm:request_queue_time_seconds", "Arrival to first admission.", LATENCY_S),
        _histogram("vllm:request_inference_time_seconds", "First admission to last token.", LATENCY_S),
        _histogram("vllm:request_prefill_time_seconds", "First admission to first token.", LATENCY_S),
        _histogram("vllm:request_decode_time_seconds", "First token to last token.", LATENCY_S),
        _histogram("vllm:request_prefill_kv_computed_tokens", "Prompt tokens that were computed.", tokens),
    ]


def _vllm_hidden() -> list[Family]:
    return [
        _gauge("vllm:gpu_cache_usage_perc", "Old name of vllm:kv_cache_usage_perc."),
        _counter("vllm:gpu_prefix_cache_queries", "Old name of vllm:prefix_cache_queries."),
        _counter("vllm:gpu_prefix_cache_hits", "Old name of vllm:prefix_cache_hits."),
        _histogram(
            "vllm:time_per_output_token_seconds", "Old name of vllm:inter_token_latency_seconds.", ITL_S
        ),
    ]


def mocker_families(*, offload: bool) -> list[Family]:
    """The mocker's own families."""
    own = ("model_name",)
    families = [
        Family("mocker:token_lateness_seconds", Kind.HISTOGRAM, "Written after the plan.", own, LATENESS_S),
        _gauge("mocker:saturated", "1 while passes cost more than they model."),
        _gauge("mocker:loop_lag_seconds", "How late the latest pass was published."),
        _gauge("mocker:loop_lag_max_seconds", "The greatest such lag so far."),
        _counter("mocker:passes", "Passes run."),
        _counter("mocker:late_passes", "Passes that began behind the plan."),
        _counter("mocker:re_anchors", "Times the plan was given up and begun anew."),
        _counter("mocker:saturated_joins", "Times a saturated loop moved its plan to let requests in."),
        _gauge("mocker:kv_blocks", "Blocks of the device by state.", "state"),
        _counter("mocker:requests_client_gone", "Requests whose client left."),
        Family("mocker:handoffs", Kind.COUNTER, "Handoffs taken in, by outcome.", (*own, "outcome")),
        Family("mocker:handoff_holds", Kind.GAUGE, "Sources held for decode servers.", own),
        Family("mocker:handoff_holds_ended", Kind.COUNTER, "Sources that ended, by how.", (*own, "state")),
        Family("mocker:kv_transfer_tokens", Kind.COUNTER, "Tokens whose KV was taken in.", own),
        Family("mocker:kv_transfer_bytes", Kind.COUNTER, "Their bytes (--kv-bytes-per-token).", own),
        Family("mocker:kv_load_failures", Kind.COUNTER, "KV that could not be loaded.", (*own, "fault")),
        Family("mocker:kv_load_recomputes", Kind.COUNTER, "Failed loads computed here instead.", own),
        Family("mocker:engine_state", Kind.GAUGE, "1 for the state the engine is in.", (*own, "state")),
    ]
    if offload:
        families += [
            _gauge("mocker:offload_blocks", "Blocks in a lower tier.", "tier"),
            _gauge("mocker:offload_blocks_capacity", "Blocks a lower tier holds.", "tier"),
            _counter("mocker:offload_bytes", "Bytes that crossed a link.", "link"),
            _gauge("mocker:offload_transfers_active", "Transfers under way."),
            _gauge("mocker:offload_parked_requests", "Requests that wait for a swap-in."),
            _counter("mocker:offload_swap_ins", "Swap-ins that arrived."),
        ]
    return families


def process_families() -> list[Family]:
    """Of this process, by the names of Prometheus's client libraries."""
    return [
        Family("process_resident_memory_bytes", Kind.GAUGE, "Resident memory size in bytes.", ()),
        Family("process_cpu_seconds", Kind.COUNTER, "User and system CPU time in seconds.", ()),
        Family("process_start_time_seconds", Kind.GAUGE, "Start, in seconds since 1970.", ()),
        Family("python_info", Kind.GAUGE, "The Python; always 1.", ("implementation", "version")),
    ]


def _gauge(name: str, text: str, *more: str) -> Family:
    return Family(name, Kind.GAUGE, text, (*ENGINE, *more))


def _counter(name: str, text: str, *more: str) -> Family:
    return Family(name, Kind.COUNTER, text, (*ENGINE, *more))


def _histogram(name: str, text: str, buckets: Sequence[float]) -> Family:
    return Family(name, Kind.HISTOGRAM, text, ENGINE, tuple(buckets))
