"""Statistics as engine.md section 10 defines them."""

from __future__ import annotations

from typing import Any

import pytest

from mocker_core.engine.replay_report import DISAGGREGATED_ROW_KEYS, ROW_KEYS, ReplayRow, summarize


def done(index: int, *, ttft: float, e2e: float, tokens: int = 3, **fields: Any) -> ReplayRow:
    return ReplayRow(
        index,
        10,
        arrival_ms=100.0,
        first_token_ms=100.0 + ttft,
        last_token_ms=100.0 + e2e,
        output_length=tokens,
        status="completed",
        **fields,
    )


def test_percentile_is_the_order_statistic_at_the_floor() -> None:
    rows = [done(index, ttft=float(index), e2e=float(index)) for index in range(10)]
    report = summarize(rows, [], 1000.0, 0.0)
    assert [report[f"p{q}_ttft_ms"] for q in (50, 90, 95, 99)] == [5.0, 9.0, 9.0, 9.0]
    assert report["mean_ttft_ms"] == 4.5
    assert report["p50_e2e_ms"] == 5.0


def test_mean_itl_weighs_rows_by_their_gaps_and_leaves_single_tokens_out() -> None:
    rows = [
        done(0, ttft=10, e2e=30, tokens=3),
        done(1, ttft=10, e2e=90, tokens=9),
        done(2, ttft=5, e2e=5, tokens=1),
    ]
    assert summarize(rows, [], 1000.0, 0.0)["mean_itl_ms"] == pytest.approx((20 + 80) / (2 + 8))


def test_itl_percentiles_are_over_single_gaps_with_their_counts() -> None:
    gaps = [(7.0, 1), (3.0, 5), (5.0, 4)]
    report = summarize([done(0, ttft=1, e2e=2)], gaps, 1000.0, 0.0)
    assert [report[f"p{q}_itl_ms"] for q in (50, 90, 99)] == [5.0, 7.0, 7.0]
    assert summarize([], [(3.0, 6), (5.0, 4)], 1.0, 0.0)["p50_itl_ms"] == 3.0


def test_rejected_rows_count_in_the_counts_only() -> None:
    rows = [done(0, ttft=1, e2e=2), ReplayRow(1, 5000, arrival_ms=0.0, status="rejected")]
    report = summarize(rows, [], 2000.0, 1.5)
    assert (report["completed"], report["rejected"]) == (1, 1)
    assert (report["input_tokens"], report["output_tokens"]) == (10, 3)
    assert (report["requests_per_s"], report["output_tokens_per_s"]) == (0.5, 1.5)
    assert report["wall_s"] == 1.5


def test_reuse_ratio_and_preemptions_are_over_the_rows() -> None:
    rows = [
        done(0, ttft=1, e2e=2, reused_input_tokens=4, preemptions=2),
        done(1, ttft=1, e2e=2, reused_input_tokens=0, preemptions=1),
    ]
    report = summarize(rows, [], 1000.0, 0.0)
    assert (report["prefix_reuse_ratio"], report["preemptions"]) == (0.2, 3)


def test_nothing_completed_gives_nulls_not_errors() -> None:
    report = summarize([], [], 0.0, 0.0)
    assert report["completed"] == 0
    for name in ("mean_ttft_ms", "p99_itl_ms", "mean_itl_ms", "requests_per_s", "prefix_reuse_ratio"):
        assert report[name] is None


def test_row_as_dict_has_every_key_and_null_where_there_is_nothing() -> None:
    told = ReplayRow(3, 7).as_dict(disaggregated=False)
    assert tuple(told) == ROW_KEYS
    assert told["ttft_ms"] is told["mean_itl_ms"] is told["status"] is None
    assert tuple(ReplayRow(3, 7).as_dict(disaggregated=True)) == ROW_KEYS + DISAGGREGATED_ROW_KEYS


def test_mean_itl_of_a_single_token_is_null() -> None:
    assert done(0, ttft=1, e2e=1, tokens=1).mean_itl_ms is None
