"""Puts every family's samples together from where their values live. Knows no text format and no HTTP."""

from __future__ import annotations

import platform
import resource
import time
from collections.abc import Iterable, Mapping

from app.metrics.counters import MetricsCounters, RankCounters
from app.metrics.exposition import Samples, Value
from app.metrics.families import (
    CACHE_CONFIG,
    FINISHED_REASONS,
    LATENESS_S,
    SLEEP_STATES,
    TOKEN_SOURCES,
    WAITING_REASONS,
    Family,
    mocker_families,
    process_families,
    vllm_families,
)
from app.metrics.histogram import Histogram
from app.metrics.ranks import RankLook, look_at_ranks
from app.ops.cache import sleeper_of
from app.ops.metrics_json import rss_bytes
from app.pd.holds import HoldState
from app.pd.params import KvLoadFault
from app.pd.service import pd_service
from app.state import AppState
from app.timeline.tracker import tracker_of
from mocker_core.handoff.coordinator import HandoffOutcome
from mocker_core.live.engine import EngineState
from mocker_core.live.plan import RankStats
from mocker_core.metrics import OffloadStats

_ENDS_OF_HOLDS = (HoldState.RELEASED, HoldState.CANCELLED, HoldState.EXPIRED, HoldState.FAILED)


Labels = tuple[str, ...]


class Sheet:
    """Samples by family name, in the order they were added."""

    def __init__(self) -> None:
        self.samples: dict[str, list[tuple[Labels, Value]]] = {}

    def add(self, name: str, labels: Labels, value: Value) -> None:
        self.samples.setdefault(name, []).append((labels, value))

    def add_each(self, name: str, labels: Labels, values: Iterable[tuple[str, float]]) -> None:
        """One sample for each value of the family's last label."""
        for label, value in values:
            self.add(name, (*labels, label), value)


class Collector:
    """One server's /metrics."""

    def __init__(self, state: AppState, counters: MetricsCounters) -> None:
        self._state = state
        self._counters = counters
        self._model = state.settings.model_names[0]
        settings = state.settings
        self.families: list[Family] = [
            *vllm_families(
                state.max_model_len,
                lora=settings.enable_lora,
                hidden=settings.show_hidden_metrics_for_version is not None,
            ),
            *mocker_families(offload=state.engine.args.offload_enabled),
            *process_families(),
        ]

    async def collect(self) -> Mapping[str, Samples]:
        """Samples by family name; counters never fall."""
        looks = await look_at_ranks(self._state)
        sheet = Sheet()
        generated = self._generated_tokens()
        for rank, (look, counters) in enumerate(zip(looks, self._counters.ranks, strict=True)):
            engine = (self._model, str(rank))
            self._gauges(sheet, engine, look)
            self._cache_config(sheet, rank)
            _count(sheet, engine, counters, look, generated[rank])
            _histograms(sheet, engine, counters)
            _loop(sheet, engine, self._state.engine.rank_stats(rank))
            if look.offload is not None:
                _offload(sheet, engine, look.offload)
        self._lora(sheet)
        self._server(sheet)
        self._handoffs(sheet)
        _process(sheet, self._state)
        return sheet.samples

    def _generated_tokens(self) -> list[int]:
        """Of each rank: what ended requests generated and what the live ones have so far."""
        tokens = [rank.ended_tokens for rank in self._counters.ranks]
        for record in tracker_of(self._state).live.values():
            tokens[record.dp_rank or 0] += record.output_tokens
        return tokens

    def _gauges(self, sheet: Sheet, engine: Labels, look: RankLook) -> None:
        metrics = look.metrics
        sheet.add("vllm:num_requests_running", engine, metrics.running_requests)
        sheet.add("vllm:num_requests_waiting", engine, metrics.waiting_requests)
        waiting = (metrics.waiting_requests - look.deferred, look.deferred)
        sheet.add_each(
            "vllm:num_requests_waiting_by_reason", engine, zip(WAITING_REASONS, waiting, strict=True)
        )
        sheet.add_each("vllm:engine_sleep_state", engine, zip(SLEEP_STATES, self._sleep_state(), strict=True))
        sheet.add("vllm:kv_cache_usage_perc", engine, metrics.gpu_cache_usage_perc)
        sheet.add("vllm:gpu_cache_usage_perc", engine, metrics.gpu_cache_usage_perc)
        sheet.add_each("mocker:kv_blocks", engine, look.blocks.items())

    def _cache_config(self, sheet: Sheet, rank: int) -> None:
        args = self._state.engine.args
        tokens = args.num_gpu_blocks * args.block_size
        known = {
            "block_size": args.block_size,
            "cache_dtype": "auto",
            "enable_prefix_caching": args.enable_prefix_caching,
            "gpu_memory_utilization": 0.9,
            "kv_cache_max_concurrency": f"{tokens / self._state.max_model_len:.2f}",
            "kv_cache_memory_bytes": None
            if args.kv_bytes_per_token is None
            else tokens * args.kv_bytes_per_token,
            "kv_cache_size_tokens": tokens,
            "num_gpu_blocks": args.num_gpu_blocks,
            "num_gpu_blocks_override": self._state.settings.num_gpu_blocks_override,
            "engine": rank,
        }
        sheet.add("vllm:cache_config_info", tuple(str(known.get(name)) for name in CACHE_CONFIG), 1)

    def _sleep_state(self) -> tuple[int, int, int]:
        sleeper = sleeper_of(self._state)
        if not sleeper.sleeping:
            return 1, 0, 0
        return 0, int(sleeper.level == 1), int(sleeper.level == 2)

    def _lora(self, sheet: Sheet) -> None:
        """Adapters of live requests, as vLLM's gauge has them: in labels, with the time as the value."""
        state = self._state
        if not state.settings.enable_lora:
            return
        names: dict[bool, dict[str, None]] = {True: {}, False: {}}
        for record in tracker_of(state).live.values():
            if state.models.is_adapter(record.model):
                names[record.running][record.model] = None
        labels = (str(state.settings.max_loras), ",".join(names[False]), ",".join(names[True]))
        sheet.add("vllm:lora_requests_info", labels, time.time())

    def _server(self, sheet: Sheet) -> None:
        state, own = self._state, (self._model,)
        lateness = state.dispatcher.lateness
        late = Histogram(LATENESS_S)
        late.counts, late.total, late.sum = lateness.counts, lateness.total, lateness.sum_ms / 1000.0
        sheet.add("mocker:token_lateness_seconds", own, late)
        sheet.add_each(
            "mocker:engine_state",
            own,
            ((name.value, int(state.engine.state == name)) for name in EngineState),
        )

    def _handoffs(self, sheet: Sheet) -> None:
        own = (self._model,)
        pd = pd_service(self._state)
        counters, kv_bytes = pd.counters, self._state.engine.args.kv_bytes_per_token or 0
        sheet.add_each("mocker:handoffs", own, ((end.value, counters.loads[end]) for end in HandoffOutcome))
        sheet.add("mocker:handoff_holds", own, pd.holds.held)
        sheet.add_each(
            "mocker:handoff_holds_ended",
            own,
            ((end.value, pd.holds.ended_total[end]) for end in _ENDS_OF_HOLDS),
        )
        sheet.add("mocker:kv_transfer_tokens", own, counters.transferred_tokens)
        sheet.add("mocker:kv_transfer_bytes", own, counters.transferred_tokens * kv_bytes)
        failures = counters.load_failures
        sheet.add_each(
            "mocker:kv_load_failures", own, ((fault.value, failures[fault]) for fault in KvLoadFault)
        )
        sheet.add("mocker:kv_load_recomputes", own, counters.recomputed)


def _count(sheet: Sheet, engine: Labels, counters: RankCounters, look: RankLook, generated: int) -> None:
    sheet.add("vllm:prefix_cache_queries", engine, counters.prefix_queries)
    sheet.add("vllm:prefix_cache_hits", engine, counters.prefix_hits)
    sheet.add("vllm:gpu_prefix_cache_queries", engine, counters.prefix_queries)
    sheet.add("vllm:gpu_prefix_cache_hits", engine, counters.prefix_hits)
    sheet.add("vllm:external_prefix_cache_queries", engine, counters.external_queries)
    sheet.add("vllm:external_prefix_cache_hits", engine, counters.external_hits)
    sheet.add("vllm:mm_cache_queries", engine, 0)
    sheet.add("vllm:mm_cache_hits", engine, 0)
    sheet.add("vllm:num_preemptions", engine, look.metrics.vllm_preemptions_total)
    sheet.add("vllm:prompt_tokens", engine, counters.prompt_tokens)
    sources = (counters.prompt_computed, counters.prompt_cached_here, counters.prompt_external)
    sheet.add_each("vllm:prompt_tokens_by_source", engine, zip(TOKEN_SOURCES, sources, strict=True))
    sheet.add("vllm:prompt_tokens_cached", engine, counters.prompt_cached_here + counters.prompt_external)
    sheet.add("vllm:generation_tokens", engine, generated)
    finished = counters.finished
    sheet.add_each(
        "vllm:request_success", engine, ((reason, finished[reason]) for reason in FINISHED_REASONS)
    )
    sheet.add("mocker:requests_client_gone", engine, counters.clients_gone)


def _histograms(sheet: Sheet, engine: Labels, counters: RankCounters) -> None:
    for name, histogram in (
        ("vllm:request_prompt_tokens", counters.request_prompt),
        ("vllm:request_generation_tokens", counters.request_generated),
        ("vllm:iteration_tokens_total", counters.iteration_tokens),
        ("vllm:request_max_num_generation_tokens", counters.request_longest),
        ("vllm:request_params_n", counters.params_n),
        ("vllm:request_params_max_tokens", counters.params_max_tokens),
        ("vllm:time_to_first_token_seconds", counters.ttft_s),
        ("vllm:inter_token_latency_seconds", counters.inter_token_s),
        ("vllm:time_per_output_token_seconds", counters.inter_token_s),
        ("vllm:request_time_per_output_token_seconds", counters.per_output_token_s),
        ("vllm:e2e_request_latency_seconds", counters.e2e_s),
        ("vllm:request_queue_time_seconds", counters.queue_s),
        ("vllm:request_inference_time_seconds", counters.inference_s),
        ("vllm:request_prefill_time_seconds", counters.prefill_s),
        ("vllm:request_decode_time_seconds", counters.decode_s),
        ("vllm:request_prefill_kv_computed_tokens", counters.request_computed),
    ):
        sheet.add(name, engine, histogram)


def _loop(sheet: Sheet, engine: Labels, stats: RankStats) -> None:
    sheet.add("mocker:saturated", engine, int(stats.saturated))
    sheet.add("mocker:loop_lag_seconds", engine, stats.last_lateness_ms / 1000)
    sheet.add("mocker:loop_lag_max_seconds", engine, stats.max_lateness_ms / 1000)
    sheet.add("mocker:passes", engine, stats.passes)
    sheet.add("mocker:late_passes", engine, stats.late_passes)
    sheet.add("mocker:re_anchors", engine, stats.re_anchors)
    sheet.add("mocker:saturated_joins", engine, stats.saturated_joins)


def _offload(sheet: Sheet, engine: Labels, stats: OffloadStats) -> None:
    used = (("host", stats.g2_blocks_used), ("disk", stats.g3_blocks_used))
    total = (("host", stats.g2_blocks_total), ("disk", stats.g3_blocks_total))
    links = (
        ("device_to_host", stats.g1_to_g2_bytes_total),
        ("host_to_device", stats.g2_to_g1_bytes_total),
        ("host_to_disk", stats.g2_to_g3_bytes_total),
        ("disk_to_host", stats.g3_to_g2_bytes_total),
    )
    sheet.add_each("mocker:offload_blocks", engine, used)
    sheet.add_each("mocker:offload_blocks_capacity", engine, total)
    sheet.add_each("mocker:offload_bytes", engine, links)
    sheet.add("mocker:offload_transfers_active", engine, stats.transfers_active)
    sheet.add("mocker:offload_parked_requests", engine, stats.parked_requests)
    sheet.add("mocker:offload_swap_ins", engine, stats.swap_ins_total)


def _process(sheet: Sheet, state: AppState) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    sheet.add("process_resident_memory_bytes", (), rss_bytes(used.ru_maxrss))
    sheet.add("process_cpu_seconds", (), used.ru_utime + used.ru_stime)
    sheet.add("process_start_time_seconds", (), state.started_at_s)
    sheet.add("python_info", (platform.python_implementation(), platform.python_version()), 1)
