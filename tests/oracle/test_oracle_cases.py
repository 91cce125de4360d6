"""The engine gives every known case's times, counts and ends; and a real trace in known time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from mocker_core.engine.offline import OfflineReplay
from mocker_core.engine.offline_disagg import DisaggregatedReplay
from mocker_core.engine_args import MockEngineArgs
from mocker_core.trace import parse_trace
from tests.harness.invariants import assert_drained
from tests.shared_cases import (
    CHECKOUT_DIR,
    SHARED_DIR,
    SKIP_REASON,
    ReplayCase,
    bundled_case_names,
    load_bundled_case,
    load_shared_case,
    row_differences,
    shared_case_names,
)

SHARED_NAMES: list[Any] = shared_case_names() or [
    pytest.param("", marks=pytest.mark.skip(reason=SKIP_REASON))
]
MOONCAKE = SHARED_DIR / "traces" / "mooncake_conversation.jsonl"


def make_replay(case: ReplayCase) -> OfflineReplay:
    trace = list(parse_trace(json.dumps(row) for row in case.trace))
    if case.engine_args is not None:
        return OfflineReplay(trace, MockEngineArgs.from_mapping(case.engine_args), **case.replay)
    assert case.prefill_engine_args is not None and case.decode_engine_args is not None
    prefill = MockEngineArgs.from_mapping(case.prefill_engine_args)
    decode = MockEngineArgs.from_mapping(case.decode_engine_args)
    return DisaggregatedReplay(trace, prefill, decode, **case.replay)


def differences(case: ReplayCase) -> list[str]:
    replay = make_replay(case)
    replay.run()
    for worker in replay.workers:
        assert_drained(worker.core)
    return row_differences(case, [row.as_dict(disaggregated=case.disaggregated) for row in replay.rows])


@pytest.mark.parametrize("name", SHARED_NAMES)
def test_shared_case_is_matched(name: str) -> None:
    assert differences(load_shared_case(name)) == []


@pytest.mark.parametrize("name", bundled_case_names())
def test_bundled_case_is_matched(name: str) -> None:
    assert differences(load_bundled_case(name)) == []


# In a process of its own, so that what other tests left behind does not count.
_MEASURE = """
import json, sys
from mocker_core.engine.offline import OfflineReplay
from mocker_core.engine.replay_report import summarize
from mocker_core.engine_args import MockEngineArgs
from mocker_core.trace import parse_trace
with open(sys.argv[1], encoding="utf-8") as lines:
    replay = OfflineReplay(list(parse_trace(lines)), MockEngineArgs())
replay.run()
report = summarize(replay.rows, replay.gaps, replay.duration_ms, 0.0)
report["leaked"] = replay.workers[0].core.pool.used_blocks
# Not getrusage: its peak counts what the parent held when it forked this process.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
report["peak_bytes"] = int(peak.split()[1]) * 1024
print(json.dumps(report))
"""


@pytest.mark.skipif(not MOONCAKE.is_file(), reason=SKIP_REASON)
@pytest.mark.skipif(sys.platform != "linux", reason="peak memory has another unit there")
def test_real_trace_takes_its_known_time_within_bounded_memory() -> None:
    command = [sys.executable, "-c", _MEASURE, str(MOONCAKE)]
    done = subprocess.run(command, cwd=CHECKOUT_DIR, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert report["completed"] == 12_031
    assert report["duration_ms"] == pytest.approx(4_590_602.326, abs=0.01)
    assert report["mean_ttft_ms"] == pytest.approx(545_732.721, abs=0.01)
    assert report["leaked"] == 0
    assert report["peak_bytes"] < 600e6
