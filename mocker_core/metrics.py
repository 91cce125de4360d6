"""Plain numbers that describe an engine rank: the metrics, forward-pass and offload snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class MockerMetrics(NamedTuple):
    """The latest state of one rank (Dynamo's field names; the seed's order)."""

    dp_rank: int
    active_decode_blocks: int
    total_blocks: int
    gpu_cache_usage_perc: float
    running_requests: int
    waiting_requests: int
    vllm_preemptions_total: int
    sglang_cache_hit_tokens: int = 0
    sglang_cache_total_tokens: int = 0


@dataclass(frozen=True, slots=True)
class LengthStats:
    """Count, sum and population variance of a set of lengths in tokens."""

    count: int = 0
    sum_tokens: int = 0
    variance: float = 0.0


@dataclass(frozen=True, slots=True)
class ForwardPassMetrics:
    """FPM: what one forward pass worked on, and what was left waiting behind it."""

    dp_rank: int
    pass_index: int
    start_ms: float
    wall_time_ms: float
    scheduled_prefill: LengthStats
    scheduled_decode: LengthStats
    queued_prefill: LengthStats
    queued_decode: LengthStats
    prefill_cached_tokens: int


@dataclass(frozen=True, slots=True)
class OffloadStats:
    """The offload tiers of one rank: blocks in use, bytes over each link, swap-ins that arrived."""

    g2_blocks_used: int
    g2_blocks_total: int
    g3_blocks_used: int
    g3_blocks_total: int
    transfers_active: int
    g1_to_g2_bytes_total: int
    g2_to_g1_bytes_total: int
    g2_to_g3_bytes_total: int
    g3_to_g2_bytes_total: int
    parked_requests: int
    swap_ins_total: int
