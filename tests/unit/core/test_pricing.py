"""Which work a pass is charged for, by role and by what a request is (engine.md 4.4)."""

from __future__ import annotations

import pytest

from mocker_core.engine.core import EngineCore
from tests.factories import make_core, make_request


def prefill_ms(tokens: int) -> float:
    return 4.209989e-07 * tokens * tokens + 1.518344e-02 * tokens + 16.50142


def decode_ms(active: int, total: int) -> float:
    use = active / total
    return -25.74 * use * use + 54.01 * use + 5.74


def wide_core(**values: object) -> EngineCore:
    return make_core(num_gpu_blocks=100, **values)


def test_batch_is_charged_by_integer_means() -> None:
    core = wide_core()
    for name, prompt in (("a", 11), ("b", 22), ("c", 44)):
        core.receive(make_request(name, prompt=prompt))
    assert core.execute_pass(0.0).end_ms == pytest.approx(prefill_ms(3 * (77 // 3)))


def test_cached_prefix_and_earlier_chunks_are_not_charged_again() -> None:
    core = wide_core(max_num_batched_tokens=10)
    core.receive(make_request("a", prompt=16, output=1))
    first = core.execute_pass(0.0)
    second = core.execute_pass(first.end_ms)
    assert second.end_ms - second.start_ms == pytest.approx(prefill_ms(6))
    core.receive(make_request("a", prompt=16, output=1))
    assert core.execute_pass(0.0).end_ms == pytest.approx(prefill_ms(4))


def test_first_token_is_no_decode_and_the_second_is_priced_by_all_context() -> None:
    core = wide_core()
    core.receive(make_request("a", prompt=10, output=9))
    core.receive(make_request("b", prompt=20, output=9))
    first = core.execute_pass(0.0)
    assert first.end_ms == pytest.approx(prefill_ms(30))
    second = core.execute_pass(0.0)
    assert second.end_ms == pytest.approx(decode_ms(11 + 21, 400))


def test_recomputed_generated_tokens_cost_budget_but_no_prefill() -> None:
    core = make_core(num_gpu_blocks=6, enable_prefix_caching=False)
    for name in "ab":
        core.receive(make_request(name, prompt=11, output=9))
    now_ms, preempted = 0.0, False
    for _ in range(40):
        result = core.execute_pass(now_ms)
        now_ms = result.end_ms
        preempted = preempted or bool(result.preempted)
        back = [a for a in result.admissions if a.readmission]
        if back:
            # Its 11 prompt tokens are charged; it decodes in the same pass with all its context.
            request = core.requests[back[0].request_id]
            context = request.num_tokens - 1
            expected = prefill_ms(11) + decode_ms(context, 24)
            assert result.end_ms - result.start_ms == pytest.approx(expected)
            assert result.prefill_chunks[0].tokens == context
            return
    raise AssertionError(f"nobody came back (preempted: {preempted})")


def test_shared_blocks_count_once_per_request_and_use_never_passes_one() -> None:
    core = make_core(num_gpu_blocks=5)
    shared = tuple(range(1, 13))
    core.receive(make_request("a", tokens=(*shared, 50), output=8))
    core.receive(make_request("b", tokens=(*shared, 60), output=8))
    first = core.execute_pass(0.0)
    second = core.execute_pass(first.end_ms)
    assert second.end_ms - second.start_ms == pytest.approx(decode_ms(20, 20))
