"""INV-9, whole replays: the rows equal those of the plain reference, aggregated and disaggregated."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mocker_core.engine.offline import OfflineReplay
from mocker_core.engine.offline_disagg import DisaggregatedReplay
from mocker_core.engine_args import MockEngineArgs
from mocker_core.errors import ArgumentError
from mocker_core.trace import parse_trace
from tests.harness.invariants import ResidentMirror, assert_drained, assert_invariants
from tests.property import strategies
from tests.property.profiles import examples
from tests.reference.plain_replay import plain_replay

Rows = list[dict[str, Any]]
STUCK = "stuck"


class Checked:
    """Looks at every worker's core after each of its passes."""

    def __init__(self) -> None:
        self.mirrors: dict[int, ResidentMirror] = {}

    def __call__(self, worker: Any, result: Any) -> None:
        assert_invariants(worker.core)
        mirror = self.mirrors.setdefault(worker.index, ResidentMirror())
        mirror.feed(result.kv_events)


def replay_rows(replay: OfflineReplay, *, disaggregated: bool) -> Rows | str:
    try:
        replay.run()
    except ArgumentError:
        return STUCK
    for worker in replay.workers:
        assert_drained(worker.core)
    return [row.as_dict(disaggregated=disaggregated) for row in replay.rows]


def plain_rows(run: Callable[[], Rows]) -> Rows | str:
    try:
        return run()
    except RuntimeError:
        return STUCK


def assert_same(ours: Rows | str, plain: Rows | str) -> None:
    if isinstance(ours, str) or isinstance(plain, str):
        assert ours == plain
        return
    for mine, theirs in zip(ours, plain, strict=True):
        assert mine.keys() == theirs.keys()
        for key, value in theirs.items():
            same = pytest.approx(value, abs=1e-9, rel=0) if isinstance(value, float) else value
            assert mine[key] == same, f"row {mine['trace_index']}: {key} is {mine[key]}, expected {value}"


def parsed(trace: Rows) -> list[Any]:
    return list(parse_trace(json.dumps(row) for row in trace))


@given(st.data())
@examples(120)
def test_aggregated_replay_gives_the_plain_rows(data: st.DataObject) -> None:
    args = data.draw(strategies.engine_args())
    concurrency = data.draw(st.sampled_from([None, None, 1, 2, 5]))
    trace_block_size = data.draw(st.sampled_from([args["block_size"], args["block_size"] * 3, 7]))
    trace = data.draw(strategies.trace_rows(trace_block_size=trace_block_size, sessions=concurrency is None))
    options: dict[str, Any] = {
        "trace_block_size": trace_block_size,
        "concurrency": concurrency,
        "num_workers": data.draw(st.integers(1, 3)),
    }
    real_args = MockEngineArgs.from_mapping(args | {"enable_kv_events": True})
    fast = OfflineReplay(parsed(trace), real_args, **options, on_pass=Checked())
    plain = plain_rows(lambda: plain_replay(trace, args, **options))
    assert_same(replay_rows(fast, disaggregated=False), plain)


@given(st.data())
@examples(120)
def test_disaggregated_replay_gives_the_plain_rows(data: st.DataObject) -> None:
    prefill = data.draw(strategies.engine_args(worker_type="prefill"))
    decode = data.draw(strategies.engine_args(worker_type="decode"))
    decode["block_size"] = prefill["block_size"]
    both = {
        "kv_bytes_per_token": data.draw(st.sampled_from([None, 100_000, 1_000_000])),
        "kv_transfer_bandwidth": data.draw(st.sampled_from([None, 0.0, 0.5, 3.0])),
        "kv_transfer_timing_mode": data.draw(st.sampled_from(["full_prompt", "destination_missing"])),
    }
    prefill, decode = prefill | both, decode | both
    trace = data.draw(strategies.trace_rows(trace_block_size=7, sessions=True))
    real = [MockEngineArgs.from_mapping(args) for args in (prefill, decode)]
    fast = DisaggregatedReplay(parsed(trace), *real, trace_block_size=7)
    plain = plain_rows(
        lambda: plain_replay(
            trace, prefill_engine_args=prefill, decode_engine_args=decode, trace_block_size=7
        )
    )
    assert_same(replay_rows(fast, disaggregated=True), plain)
