"""`preempt_all`: everybody back to the queue in running order, and every token still comes once."""

from __future__ import annotations

from tests.factories import make_core, make_request, run_passes
from tests.harness.invariants import assert_drained, assert_invariants


def test_preempted_requests_go_back_to_the_front_in_running_order() -> None:
    core = make_core(num_gpu_blocks=40, max_num_seqs=3)
    for name in ("a", "b", "c", "d"):
        core.receive(make_request(name, prompt=6, output=5))
    for _ in range(3):
        core.execute_pass(0.0)
    running = [request.request_id for request in core.scheduler.running()]
    assert core.preempt_all(0.0) == 3
    assert [request.request_id for request in core.scheduler.waiting] == [*running, "d"]
    assert core.pool.used_blocks == 0
    assert core.metrics().vllm_preemptions_total == 3
    assert_invariants(core)
    results = run_passes(core)
    tokens: list[str] = [signal.request_id for result in results for signal in result.outputs]
    # Three tokens of each of the first three came before.
    assert {name: tokens.count(name) for name in "abcd"} == {"a": 2, "b": 2, "c": 2, "d": 5}
    assert_drained(core)


def test_preempting_nobody_changes_nothing() -> None:
    core = make_core()
    assert core.preempt_all(0.0) == 0
    assert core.metrics().vllm_preemptions_total == 0
