"""The plain reference engine gives every known case's times, counts and ends."""

from __future__ import annotations

import ast
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.reference.plain_core import PlainArgs, PlainCore, PlainRequest
from tests.reference.plain_replay import PlainReplay, plain_replay
from tests.shared_cases import (
    SKIP_REASON,
    ReplayCase,
    bundled_case_names,
    load_bundled_case,
    load_shared_case,
    row_differences,
    shared_case_names,
)

REFERENCE_DIR = Path(__file__).parent
SHARED_NAMES: list[Any] = shared_case_names() or [
    pytest.param("", marks=pytest.mark.skip(reason=SKIP_REASON))
]


def replay_case(case: ReplayCase) -> list[dict[str, Any]]:
    return plain_replay(
        case.trace,
        case.engine_args,
        prefill_engine_args=case.prefill_engine_args,
        decode_engine_args=case.decode_engine_args,
        **case.replay,
    )


@pytest.mark.parametrize("name", SHARED_NAMES)
def test_shared_case_is_matched(name: str) -> None:
    case = load_shared_case(name)
    assert row_differences(case, replay_case(case)) == []


@pytest.mark.parametrize("name", bundled_case_names())
def test_bundled_case_is_matched(name: str) -> None:
    case = load_bundled_case(name)
    assert row_differences(case, replay_case(case)) == []


@pytest.mark.parametrize("name", [n for n in bundled_case_names() if n in shared_case_names()])
def test_bundled_case_equals_its_shared_original(name: str) -> None:
    shared = json.loads(json.dumps(dataclasses.asdict(load_shared_case(name))))
    assert dataclasses.asdict(load_bundled_case(name)) == shared


def test_bundled_cases_are_there() -> None:
    assert len(bundled_case_names()) >= 8


def test_comparison_sees_a_time_off_by_more_than_the_tolerance() -> None:
    case = load_bundled_case("micro_preempt")
    rows = replay_case(case)
    rows[2]["last_token_ms"] += 0.02
    rows[3]["preemptions"] += 1
    found = row_differences(case, rows)
    assert len(found) == 2
    assert "row 2: last_token_ms" in found[0]
    assert "row 3: preemptions" in found[1]


def test_comparison_sees_a_missing_row() -> None:
    case = load_bundled_case("micro_preempt")
    assert row_differences(case, replay_case(case)[1:]) != []


class CheckedReplay(PlainReplay):
    """Checks the engine after every pass and rebuilds the resident identities from its KV events."""

    resident: set[int]

    def start_pass(self, worker: Any, now_ms: float) -> None:
        super().start_pass(worker, now_ms)
        worker.core.check()
        for kind, _, identities in worker.current.kv_events if worker.current else []:
            if kind == "stored":
                assert self.resident.isdisjoint(identities)
                self.resident.update(identities)
            else:
                assert self.resident.issuperset(identities)
                self.resident.difference_update(identities)
        assert self.resident == set(worker.core.pool.copies)


@pytest.mark.parametrize("preemption_mode", ["lifo", "fifo"])
def test_replay_under_pressure_keeps_the_laws(preemption_mode: str) -> None:
    case = load_bundled_case("micro_preempt")
    assert case.engine_args is not None
    args = PlainArgs.from_mapping({**case.engine_args, "preemption_mode": preemption_mode})
    replay = CheckedReplay(case.trace, args, **case.replay)
    replay.resident = set()
    rows = replay.run()
    core = replay.workers[0].core
    assert core.pool.active == 0
    assert not (core.running or core.preempted or core.waiting)
    assert sum(row["preemptions"] for row in rows) == core.preemptions > 0
    assert {row["status"] for row in rows} == {"completed"}


def token_request(request_id: str, tokens: range, output: int) -> PlainRequest:
    return PlainRequest.from_tokens(request_id, list(tokens), output)


def test_request_that_could_never_finish_is_rejected_and_the_next_one_runs() -> None:
    core = PlainCore(PlainArgs(num_gpu_blocks=2, block_size=4))
    core.receive(token_request("endless", range(6), 4))  # its last token but one needs a third block
    core.receive(token_request("fits", range(6), 3))
    first = core.execute_pass(0.0)
    assert first.outputs == [("endless", None, True, True), ("fits", 0, False, False)]
    assert first.admissions == [("fits", 0)]


def test_cancel_frees_every_block_and_a_second_one_is_a_noop() -> None:
    core = PlainCore(PlainArgs(num_gpu_blocks=8, block_size=4))
    core.receive(token_request("a", range(9), 5))
    assert core.execute_pass(0.0).metrics == (3, 8, 1, 0, 0)
    assert core.cancel("a", 1.0)
    core.check()
    assert core.pool.active == 0
    assert not core.cancel("a", 2.0)


def test_handoff_holds_reserves_activates_and_ends_without_a_leak() -> None:
    source = PlainCore(PlainArgs(num_gpu_blocks=8, block_size=4, worker_type="prefill"))
    destination = PlainCore(PlainArgs(num_gpu_blocks=8, block_size=4, worker_type="decode"))
    source.submit_handoff_prefill("h", token_request("a", range(9), 3))
    held = source.execute_pass(0.0)
    assert held.outputs == [("a", 0, True, False)]
    assert held.lifecycle == [("source_held", "h", "a", 9)]
    assert held.metrics == (3, 8, 0, 0, 0)
    destination.reserve_destination("h", token_request("a", range(9), 3))
    assert destination.attempt_grant() is not None
    assert destination.take_lifecycle() == [("destination_reserved", "h", "a", 12)]
    assert destination.activate_destination("h")
    assert source.release_source("h")
    assert source.pool.active == 0
    now_ms, tokens = held.end_ms, 0
    for _ in range(3):
        result = destination.execute_pass(now_ms)
        destination.check()
        assert result.end_ms > now_ms
        now_ms, tokens = result.end_ms, tokens + len(result.outputs)
    assert tokens == 3
    assert destination.pool.active == 0
    assert not destination.cancel_destination("h")


def test_only_one_destination_is_granted_per_attempt_and_a_refused_head_waits_for_capacity() -> None:
    core = PlainCore(PlainArgs(num_gpu_blocks=3, block_size=4, worker_type="decode"))
    for name, start in (("a", 0), ("b", 100), ("c", 200)):
        core.reserve_destination(name, token_request(name, range(start, start + 6), 3))
    granted = [core.attempt_grant(), core.attempt_grant(), core.attempt_grant()]
    assert [g.request_id if g else None for g in granted] == ["a", None, None]
    assert core.cancel_destination("a")
    assert (core.attempt_grant() or core.pending[0]).request_id == "b"
    core.check()


def test_reference_never_imports_the_engine_it_checks() -> None:
    for path in REFERENCE_DIR.glob("plain_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not [name for name in names if name.split(".")[0] in ("mocker_core", "app")], path.name
