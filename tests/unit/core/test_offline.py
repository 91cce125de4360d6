"""Replays on the virtual clock: what the known cases do not cover."""

from __future__ import annotations

from typing import Any

import pytest

from mocker_core.engine.offline import OfflineReplay, ReplayWorker
from mocker_core.engine.offline_disagg import DisaggregatedReplay
from mocker_core.errors import ArgumentError
from mocker_core.sched.output import EnginePassResult
from mocker_core.trace import TraceRow
from tests.factories import make_args

FIXED = {"type": "fixed", "prefill_ms": 10, "decode_ms": 3}


def row(index: int, *, at: float = 0.0, prompt: int = 4, output: int = 3) -> TraceRow:
    return TraceRow(index, at, prompt, output)


def replay(*trace: TraceRow, **options: Any) -> OfflineReplay:
    made = OfflineReplay(trace, make_args(timing_model=FIXED), trace_block_size=4, **options)
    made.run()
    return made


def disaggregated(
    *trace: TraceRow, both: dict[str, Any] | None = None, **options: Any
) -> DisaggregatedReplay:
    values = {"timing_model": FIXED} | (both or {})
    prefill = make_args(worker_type="prefill", **values)
    decode = make_args(worker_type="decode", **values)
    made = DisaggregatedReplay(trace, prefill, decode, trace_block_size=4, **options)
    made.run()
    return made


def test_row_tells_the_times_of_its_request() -> None:
    (told,) = replay(row(0)).rows
    assert (told.arrival_ms, told.first_admit_ms, told.first_token_ms, told.last_token_ms) == (0, 0, 10, 16)
    assert (told.ttft_ms, told.e2e_ms, told.mean_itl_ms) == (10, 16, 3)
    assert (told.output_length, told.preemptions, told.status) == (3, 0, "completed")


def test_idle_engine_jumps_to_the_next_arrival_and_a_busy_one_takes_it_at_its_next_pass() -> None:
    made = replay(row(0), row(1, at=12.0), row(2, at=1000.0, output=1))
    assert [told.first_admit_ms for told in made.rows] == [0, 13, 1000]
    assert made.duration_ms == 1010


def test_workers_take_turns() -> None:
    made = replay(*[row(index, output=1) for index in range(4)], num_workers=2)
    seen: list[int] = [worker.core.pool.inactive_blocks for worker in made.workers]
    assert seen == [2, 2]


def test_rejected_row_has_no_times_and_the_next_one_runs() -> None:
    rejected, next_one = replay(row(0, prompt=25), row(1)).rows
    assert (rejected.status, rejected.first_admit_ms, rejected.output_length) == ("rejected", None, 0)
    assert next_one.status == "completed"


def test_row_that_can_never_be_scheduled_ends_the_replay_with_advice() -> None:
    args = make_args(max_num_batched_tokens=4, enable_chunked_prefill=False)
    with pytest.raises(ArgumentError, match=r"trace row 1 can never be scheduled.*enable chunked prefill"):
        OfflineReplay([row(0), row(1, prompt=8)], args).run()


def test_empty_trace_ends_at_once() -> None:
    assert replay().duration_ms == 0.0


def test_observer_sees_every_pass_at_its_end() -> None:
    seen: list[tuple[int, float]] = []

    def observe(worker: ReplayWorker, result: EnginePassResult) -> None:
        seen.append((worker.index, result.end_ms))

    replay(row(0), on_pass=observe)
    assert seen == [(0, 10.0), (0, 13.0), (0, 16.0)]


def test_no_worker_is_refused() -> None:
    with pytest.raises(ArgumentError, match="num_workers is 0; it must be >= 1"):
        replay(row(0), num_workers=0)
    with pytest.raises(ArgumentError, match="num_decode_workers is 0; it must be >= 1"):
        disaggregated(row(0), num_decode_workers=0)


def test_roles_of_different_block_size_are_refused() -> None:
    prefill, decode = make_args(worker_type="prefill"), make_args(worker_type="decode", block_size=8)
    with pytest.raises(ArgumentError, match="block_size is 4 for prefill and 8 for decode"):
        DisaggregatedReplay([row(0)], prefill, decode)


def test_decode_workers_that_reserve_no_destination_are_refused() -> None:
    prefill, decode = make_args(worker_type="prefill"), make_args(worker_type="decode", engine_type="trtllm")
    with pytest.raises(ArgumentError, match="engine_type is trtllm for decode"):
        DisaggregatedReplay([row(0)], prefill, decode)


def test_handoff_without_a_transfer_delay_settles_in_one_instant() -> None:
    (told,) = disaggregated(row(0)).rows
    times = told.as_dict(disaggregated=True)
    assert times["prefill_admit_ms"] == 0
    for name in ("source_held", "destination_reserved", "destination_activated", "source_released"):
        assert times[f"{name}_ms"] == 10
    assert (times["decode_admit_ms"], times["first_token_ms"], times["last_token_ms"]) == (10, 13, 19)


def test_transfer_delay_counts_from_the_grant() -> None:
    slow = {"kv_bytes_per_token": 1_000_000, "kv_transfer_bandwidth": 1.0}
    (told,) = disaggregated(row(0), both=slow).rows
    assert told.destination_reserved_ms == 10
    assert told.destination_activated_ms == pytest.approx(14)
    assert told.source_released_ms == pytest.approx(14)


def test_replay_gives_up_no_handoff_for_waiting_longer_than_a_session() -> None:
    slow = {"kv_bytes_per_token": 1_000_000, "kv_transfer_bandwidth": 1.0, "handoff_session_timeout_ms": 0}
    made = disaggregated(*[row(index, prompt=20, output=4) for index in range(3)], both=slow)
    assert [told.status for told in made.rows] == ["completed"] * 3
    waits = [(told.destination_reserved_ms or 0) - (told.source_held_ms or 0) for told in made.rows]
    assert max(waits) > 0
    assert all(worker.core.handoffs.expired_sources_total == 0 for worker in made.workers)


def test_destination_missing_moves_only_what_is_not_resident() -> None:
    slow = {
        "kv_bytes_per_token": 1_000_000,
        "kv_transfer_bandwidth": 1.0,
        "kv_transfer_timing_mode": "destination_missing",
    }
    first = TraceRow(0, 0.0, 8, 1, (1, 2))
    second = TraceRow(1, 500.0, 8, 1, (1, 2))
    made = disaggregated(first, second, both=slow)
    delays = [
        (told.destination_activated_ms or 0) - (told.destination_reserved_ms or 0) for told in made.rows
    ]
    assert delays == [pytest.approx(8), 0]


def test_destination_that_the_decode_worker_refuses_ends_as_rejected_and_its_source_is_freed() -> None:
    made = disaggregated(row(0, prompt=20, output=20), row(1))
    assert [told.status for told in made.rows] == ["rejected", "completed"]
    assert all(not worker.core.requests for worker in made.workers)


def test_several_workers_of_each_role_take_turns() -> None:
    made = disaggregated(*[row(index) for index in range(4)], num_prefill_workers=2, num_decode_workers=2)
    assert [worker.core.pool.inactive_blocks for worker in made.workers] == [2, 2, 2, 2]
    assert {told.status for told in made.rows} == {"completed"}
