"""Replays with and without tiers: hit ratio and TTFT change the way the sizes and links say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mocker_core.engine.offline import OfflineReplay
from mocker_core.engine.offline_disagg import DisaggregatedReplay
from mocker_core.engine.replay_report import summarize
from mocker_core.engine_args import MockEngineArgs
from mocker_core.trace import TraceRow, parse_trace

BLOCK, PREFIX_BLOCKS, PREFIXES, ROUNDS = 64, 40, 6, 5
ARGS: dict[str, Any] = {"num_gpu_blocks": 2 * PREFIX_BLOCKS, "block_size": BLOCK}
# 128 KiB per token: a prefix is 335 MB, 24 ms over 14 GB/s, and 55 ms to compute.
TIERS: dict[str, Any] = {"kv_bytes_per_token": 131_072, "num_g2_blocks": 400}


def prefix_trace() -> list[TraceRow]:
    """Six long prefixes in turn, each with a question of its own; two of them fill the device."""
    rows = []
    for turn in range(PREFIXES * ROUNDS):
        prefix = turn % PREFIXES
        rows.append(
            {
                "timestamp": 400 * turn,
                "input_length": BLOCK * PREFIX_BLOCKS + 20,
                "output_length": 4,
                "hash_ids": [*range(1000 * prefix, 1000 * prefix + PREFIX_BLOCKS), 10_000 + turn],
            }
        )
    return list(parse_trace(json.dumps(row) for row in rows))


def replay(**args: Any) -> tuple[OfflineReplay, dict[str, Any]]:
    run = OfflineReplay(prefix_trace(), MockEngineArgs.from_mapping(ARGS | args), trace_block_size=BLOCK)
    run.run()
    assert {row.status for row in run.rows} == {"completed"}
    return run, summarize(run.rows, run.gaps, run.duration_ms, 0.0)


def swap_ins(run: OfflineReplay) -> int:
    stats = run.workers[0].core.offload_stats()
    assert stats is not None
    return stats.swap_ins_total


def test_host_tier_large_enough_gives_every_prefix_back() -> None:
    _, plain = replay()
    run, tiered = replay(**TIERS)
    assert plain["prefix_reuse_ratio"] == 0
    # All but the first round.
    most = (ROUNDS - 1) / ROUNDS * (BLOCK * PREFIX_BLOCKS) / (BLOCK * PREFIX_BLOCKS + 20)
    assert tiered["prefix_reuse_ratio"] == pytest.approx(most)
    assert swap_ins(run) == PREFIXES * (ROUNDS - 1)
    assert tiered["mean_ttft_ms"] < plain["mean_ttft_ms"]


def test_swapped_in_prefix_costs_its_bytes_over_the_link() -> None:
    run, _ = replay(**TIERS)
    prefix_ms = PREFIX_BLOCKS * BLOCK * 131_072 / 14e9 * 1e3
    last = run.rows[-1]
    assert last.first_admit_ms is not None
    assert last.arrival_ms is not None
    # Its slots are free at once: what lies on the device is in the host tier as well.
    assert last.first_admit_ms - last.arrival_ms == pytest.approx(prefix_ms, rel=0.05)


def test_slow_link_makes_ttft_worse_at_the_same_hit_ratio() -> None:
    _, fast = replay(**TIERS)
    _, slow = replay(**TIERS, bandwidth_g2_to_g1_gbps=1.0)
    assert slow["prefix_reuse_ratio"] == fast["prefix_reuse_ratio"]
    assert slow["mean_ttft_ms"] > 3 * fast["mean_ttft_ms"]


def test_instant_links_give_the_best_ttft() -> None:
    links = {f"bandwidth_{name}_gbps": 0 for name in ("g1_to_g2", "g2_to_g1")}
    _, fast = replay(**TIERS)
    _, instant = replay(**TIERS, **links)
    assert instant["prefix_reuse_ratio"] == fast["prefix_reuse_ratio"]
    assert instant["mean_ttft_ms"] < fast["mean_ttft_ms"]


def test_host_tier_smaller_than_the_working_set_helps_less() -> None:
    ratios = [
        replay(**TIERS | {"num_g2_blocks": blocks})[1]["prefix_reuse_ratio"] for blocks in (10, 130, 400)
    ]
    assert ratios == sorted(ratios)
    assert ratios[0] < 0.5 * ratios[-1]


def test_disk_takes_what_the_host_has_no_room_for() -> None:
    small = TIERS | {"num_g2_blocks": 60}
    _, host_only = replay(**small)
    run, with_disk = replay(**small, num_g3_blocks=400)
    assert with_disk["prefix_reuse_ratio"] > host_only["prefix_reuse_ratio"]
    stats = run.workers[0].core.offload_stats()
    assert stats is not None
    assert stats.g3_to_g2_bytes_total > 0


def test_device_that_holds_everything_never_uses_the_tiers() -> None:
    plain, _ = replay(num_gpu_blocks=1000)
    tiered, _ = replay(num_gpu_blocks=1000, **TIERS)
    assert tiered.rows == plain.rows
    stats = tiered.workers[0].core.offload_stats()
    assert stats is not None
    assert (stats.g1_to_g2_bytes_total, stats.g2_blocks_used) == (0, 0)


def test_times_are_the_same_in_every_run() -> None:
    (first, _), (second, _) = replay(**TIERS, num_g3_blocks=50), replay(**TIERS, num_g3_blocks=50)
    assert first.rows == second.rows
    assert first.gaps == second.gaps


def test_closed_loop_and_several_workers_end_with_tiers() -> None:
    both = {"concurrency": 3, "num_workers": 2}
    choices: list[dict[str, Any]] = [{"concurrency": 4}, {"num_workers": 2}, both]
    for options in choices:
        args = MockEngineArgs.from_mapping(ARGS | TIERS)
        run = OfflineReplay(prefix_trace(), args, trace_block_size=BLOCK, **options)
        run.run()
        assert {row.status for row in run.rows} == {"completed"}


def test_disaggregated_replay_grants_at_the_deadline_of_an_idle_worker() -> None:
    common = ARGS | {"kv_bytes_per_token": 131_072}
    decode = common | {"worker_type": "decode", "num_g2_blocks": 400, "bandwidth_g1_to_g2_gbps": 2.0}
    run = DisaggregatedReplay(
        prefix_trace(),
        MockEngineArgs.from_mapping(common | {"worker_type": "prefill"}),
        MockEngineArgs.from_mapping(decode),
        trace_block_size=BLOCK,
    )
    run.run()
    assert {row.status for row in run.rows} == {"completed"}
    waits = [row.destination_reserved_ms - row.source_held_ms for row in run.rows]  # type: ignore[operator]
    assert waits[0] == 0
    # From the third on the device is full: the oldest prefix goes down first, 41 blocks but the free ones.
    block_ms = BLOCK * 131_072 / 2e9 * 1e3
    assert max(waits) == pytest.approx(round(max(waits) / block_ms) * block_ms)
    assert max(waits) > 30 * block_ms
