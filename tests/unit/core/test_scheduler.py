from __future__ import annotations

import pytest

from mocker_core.engine.core import EngineCore
from tests.factories import make_core, make_request, run_passes
from tests.harness.invariants import assert_drained, assert_invariants


def test_head_is_admitted_as_soon_as_an_eviction_makes_its_hit_an_active_copy() -> None:
    core = make_core(num_gpu_blocks=6, block_size=4)
    block = (1, 2, 3, 4)
    core.receive(make_request("first-copy", tokens=block, output=1))
    core.receive(make_request("second-copy", tokens=block, output=20))
    core.receive(make_request("big", prompt=8, output=5))
    now_ms = 0.0
    for _ in range(4):
        now_ms = core.execute_pass(now_ms).end_ms
    core.receive(make_request("head", tokens=(*block, *range(50, 60)), output=1))
    blocked = core.execute_pass(
        now_ms
    )  # big ends here; the copy cached first is inactive, so the hit saves nothing
    assert blocked.admissions == []
    admitted = core.execute_pass(
        blocked.end_ms
    )  # second-copy grows and evicts it: its own copy, active, is left
    assert [(a.request_id, a.reused_input_tokens) for a in admitted.admissions] == [("head", 4)]


def run_order(core: EngineCore) -> list[str]:
    return [request.request_id for request in core.scheduler.running()]


def three_running(**values: object) -> tuple[EngineCore, float]:
    """a, b and c hold 2 full blocks each of 6, one token short of a third one."""
    core = make_core(**values)
    for name in "abc":
        core.receive(make_request(name, prompt=8, output=9))
    return core, core.execute_pass(0.0).end_ms


def test_lifo_preempts_the_newest_and_puts_it_in_front() -> None:
    core, now_ms = three_running()
    core.receive(make_request("waiting", prompt=4, priority=9))
    result = core.execute_pass(now_ms)
    assert result.preempted == ["c"]
    assert run_order(core) == ["a", "b"]
    assert [request.request_id for request in core.scheduler.waiting] == ["c", "waiting"]
    assert result.admissions == []  # none after a preemption
    assert_invariants(core)


@pytest.mark.parametrize(("mode", "victim"), [("lifo", "urgent"), ("fifo", "low")])
def test_priority_never_chooses_whom_to_preempt(mode: str, victim: str) -> None:
    core = make_core(preemption_mode=mode)
    for now_ms, (name, priority) in enumerate((("low", 0), ("mid", 5), ("urgent", 9))):
        core.receive(make_request(name, prompt=5, output=12, priority=priority))
        assert core.execute_pass(float(now_ms)).preempted == []
    assert run_order(core) == ["low", "mid", "urgent"]
    results = run_passes(core, 9.0)
    assert next(result.preempted for result in results if result.preempted)[0] == victim


def test_fifo_preempts_the_oldest_and_passes_the_next_one_over() -> None:
    core, now_ms = three_running(preemption_mode="fifo")
    result = core.execute_pass(now_ms)
    # a needs a block and is itself the oldest; then b takes what a left, and c too.
    assert result.preempted == ["a"]
    assert run_order(core) == ["b", "c"]
    assert [signal.request_id for signal in result.outputs] == ["b", "c"]


def test_fifo_preemption_by_a_later_request_leaves_the_index_and_skips_one() -> None:
    core = make_core(num_gpu_blocks=6, preemption_mode="fifo")
    core.receive(make_request("a", prompt=7, output=9))  # stays within its two blocks in the second pass
    core.receive(make_request("b", prompt=8, output=9))
    core.receive(make_request("c", prompt=7, output=9))
    now_ms = core.execute_pass(0.0).end_ms
    result = core.execute_pass(now_ms)
    assert result.preempted == ["a"]
    # a had its token in this pass and loses it; b got its block; c is passed over, so only b samples.
    assert [signal.request_id for signal in result.outputs] == ["b"]
    assert_invariants(core)


def test_preempted_request_recomputes_and_its_output_goes_on_without_repeating() -> None:
    core, now_ms = three_running()
    results = run_passes(core, now_ms)
    for name in "abc":
        tokens = [s.token_id for r in results for s in r.outputs if s.request_id == name]
        assert len(tokens) == len(set(tokens)) == 8
    again = [a for r in results for a in r.admissions if a.readmission]
    assert [a.request_id for a in again] == ["b", "c"]  # b was preempted after c, so it is before it
    assert_drained(core)


def test_admission_needs_room_for_the_whole_sequence_though_only_a_chunk_runs() -> None:
    core = make_core(max_num_batched_tokens=8)
    core.receive(make_request("a", prompt=8, output=1))
    core.receive(make_request("held", prompt=4, output=20))
    core.receive(make_request("b", prompt=24, output=1))
    first = core.execute_pass(0.0)
    assert [a.request_id for a in first.admissions] == ["a"]
    second = core.execute_pass(first.end_ms)  # there is budget for a chunk, but no room for 6 blocks
    assert [a.request_id for a in second.admissions] == ["held"]
    assert core.metrics().waiting_requests == 1


def test_head_is_never_skipped_though_the_next_one_would_fit() -> None:
    core = make_core()
    core.receive(make_request("running", prompt=9, output=3))
    core.receive(make_request("big", prompt=16, output=1))
    core.receive(make_request("small", prompt=1, output=1))
    assert [a.request_id for a in core.execute_pass(0.0).admissions] == ["running"]


def test_budget_is_shared_running_first_and_a_long_prompt_comes_in_chunks() -> None:
    core = make_core(num_gpu_blocks=20, max_num_batched_tokens=6)
    core.receive(make_request("a", prompt=5, output=9))
    core.receive(make_request("b", prompt=12, output=1))
    chunks = []
    now_ms = 0.0
    for _ in range(4):
        result = core.execute_pass(now_ms)
        now_ms = result.end_ms
        chunks.append([(chunk.request_id, chunk.tokens) for chunk in result.prefill_chunks])
    assert chunks == [[("a", 5), ("b", 1)], [("b", 5)], [("b", 5)], [("b", 1)]]


def test_without_chunked_prefill_a_prompt_waits_for_a_whole_budget() -> None:
    core = make_core(num_gpu_blocks=20, max_num_batched_tokens=6, enable_chunked_prefill=False)
    core.receive(make_request("a", prompt=5, output=2))
    core.receive(make_request("b", prompt=6, output=1))
    results = run_passes(core)
    assert [[a.request_id for a in r.admissions] for r in results] == [["a"], [], ["b"]]


def test_max_num_seqs_bounds_the_running() -> None:
    core = make_core(max_num_seqs=2)
    for name in "abc":
        core.receive(make_request(name, prompt=1, output=2))
    results = run_passes(core)
    assert [[a.request_id for a in r.admissions] for r in results] == [["a", "b"], [], ["c"], []]


def test_later_request_of_the_same_pass_hits_what_an_earlier_one_computes() -> None:
    core = make_core()
    shared = (1, 2, 3, 4)
    core.receive(make_request("a", tokens=(*shared, 5), output=1))
    core.receive(make_request("b", tokens=(*shared, 6), output=1))
    result = core.execute_pass(0.0)
    assert [a.reused_input_tokens for a in result.admissions] == [0, 4]
