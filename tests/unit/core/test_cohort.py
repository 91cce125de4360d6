"""The steady decode batch: it must never be seen from outside, so most of this looks at boundaries."""

from __future__ import annotations

import pytest

from mocker_core.commands import ActivateDestination, ReserveDestination
from mocker_core.engine.core import EngineCore
from mocker_core.events import BlocksRemoved, BlocksStored
from mocker_core.request import HandoffId, RequestId
from tests.factories import make_core, make_request, run_passes
from tests.harness.invariants import assert_drained, assert_invariants


def members(core: EngineCore) -> list[str]:
    return [request.request_id for request in core.scheduler.cohort.members]


def tail(core: EngineCore) -> list[str]:
    return [request.request_id for request in core.scheduler.tail]


def test_requests_join_when_they_have_sampled_and_not_while_they_prefill() -> None:
    core = make_core(num_gpu_blocks=20, max_num_batched_tokens=6)
    core.receive(make_request("a", prompt=3, output=9))
    core.receive(make_request("b", prompt=9, output=9))
    core.execute_pass(0.0)
    assert (members(core), tail(core)) == (["a"], ["b"])
    core.execute_pass(1.0)
    assert (members(core), tail(core)) == (["a"], ["b"])
    core.execute_pass(2.0)
    assert (members(core), tail(core)) == (["a", "b"], [])


@pytest.mark.parametrize("prompt", range(1, 10))
def test_blocks_are_allocated_and_cached_exactly_at_their_boundaries(prompt: int) -> None:
    core = make_core(num_gpu_blocks=20)
    core.receive(make_request("a", prompt=prompt, output=12))
    now_ms = 0.0
    for generated in range(1, 12):
        result = core.execute_pass(now_ms)
        now_ms = result.end_ms
        computed = prompt + generated - 1
        request = core.requests[RequestId("a")]
        assert request.table.num_blocks == -(-computed // 4)
        assert len(request.table.cached) == computed // 4
        assert_invariants(core)
    core.execute_pass(now_ms)
    assert_drained(core)


def test_member_that_ends_leaves_the_others_in_order() -> None:
    core = make_core(num_gpu_blocks=20)
    for name, output in (("a", 6), ("b", 3), ("c", 6)):
        core.receive(make_request(name, prompt=2, output=output))
    results = [core.execute_pass(float(now)) for now in range(3)]
    assert [(s.request_id, s.completed) for s in results[-1].outputs] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]
    assert members(core) == ["a", "c"]


def test_limit_of_max_model_len_ends_a_member() -> None:
    core = make_core(max_model_len=7)
    core.receive(make_request("a", prompt=4, output=50))
    results = run_passes(core)
    assert [len(result.outputs) for result in results] == [1, 1, 1]
    assert results[-1].outputs[0].completed


def test_cancelled_member_is_gone_at_once_and_the_others_go_on() -> None:
    core = make_core(num_gpu_blocks=20)
    for name in "abc":
        core.receive(make_request(name, prompt=2, output=6))
    core.execute_pass(0.0)
    core.execute_pass(1.0)
    assert core.cancel(RequestId("b"), 1.5)
    assert_invariants(core)
    assert [s.request_id for s in core.execute_pass(2.0).outputs] == ["a", "c"]


def test_budget_below_its_size_dissolves_it_and_serves_the_first_ones() -> None:
    core = make_core(num_gpu_blocks=20, max_num_batched_tokens=2)
    for name in "abc":
        core.receive(make_request(name, prompt=1, output=5))
    first = core.execute_pass(0.0)
    assert [s.request_id for s in first.outputs] == ["a", "b"]
    second = core.execute_pass(first.end_ms)
    assert [s.request_id for s in second.outputs] == ["a", "b"]
    assert members(core) == ["a", "b"]
    assert_invariants(core)


def test_destinations_admitted_beyond_the_budget_dissolve_it_in_the_next_pass() -> None:
    core = make_core(num_gpu_blocks=20, max_num_batched_tokens=2, worker_type="decode")
    for name in "abc":
        handoff = HandoffId(name)
        for command in (
            ReserveDestination(handoff, make_request(name, output=9)),
            ActivateDestination(handoff),
        ):
            core.apply_command(command, allow_destination_grant=True, now_ms=0.0)
    # With their KV in place they take no token of the budget at first, but one each from then on.
    assert [s.request_id for s in core.execute_pass(0.0).outputs] == ["a", "b", "c"]
    assert members(core) == ["a", "b", "c"]
    assert [s.request_id for s in core.execute_pass(1.0).outputs] == ["a", "b"]
    assert (members(core), tail(core)) == (["a", "b"], ["c"])
    assert_invariants(core)


def test_lifo_preemption_at_a_block_boundary_takes_the_newest_and_keeps_it_whole() -> None:
    core = make_core()
    for name in "abc":
        core.receive(make_request(name, prompt=8, output=9))
    core.execute_pass(0.0)
    result = core.execute_pass(1.0)
    assert result.preempted == ["c"]
    assert members(core) == ["a", "b"]
    assert [s.request_id for s in result.outputs] == ["a", "b"]
    assert_invariants(core)


def test_member_that_preempts_itself_leaves_the_others_their_token() -> None:
    core = make_core(num_gpu_blocks=4)
    core.receive(make_request("a", prompt=7, output=9))
    core.receive(make_request("b", prompt=8, output=8))
    core.execute_pass(0.0)
    result = core.execute_pass(1.0)
    assert result.preempted == ["b"]
    assert [s.request_id for s in result.outputs] == ["a"]
    assert_invariants(core)
    run_passes(core, 2.0)
    assert_drained(core)


def test_boundaries_of_one_pass_are_served_in_running_order_whoever_was_due_first() -> None:
    core = make_core(num_gpu_blocks=3)
    core.receive(make_request("old", prompt=4, output=1))
    core.execute_pass(0.0)
    core.receive(make_request("a", prompt=2, output=9))
    core.receive(make_request("b", prompt=1, output=4))
    for now in range(1, 4):
        core.execute_pass(float(now))
    # a starts a block, for which old's must go; b, whose boundary was known before a's, fills one.
    removed, stored = core.execute_pass(4.0).kv_events
    assert isinstance(removed, BlocksRemoved)
    assert isinstance(stored, BlocksStored)


def test_gaps_of_members_are_told_as_one_number_with_a_count() -> None:
    core = make_core(num_gpu_blocks=20, timing_model={"type": "fixed", "prefill_ms": 10, "decode_ms": 3})
    for name in "ab":
        core.receive(make_request(name, prompt=2, output=3))
    results = run_passes(core)
    assert [result.gaps for result in results] == [[], [(3.0, 2)], [(3.0, 2)]]
