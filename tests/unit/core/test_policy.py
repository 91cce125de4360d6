"""vllm admits what fits now; trtllm reserves the whole future (engine.md 4.6)."""

from __future__ import annotations

import pytest

from mocker_core.engine.core import EngineCore
from tests.factories import make_core, make_request, run_passes
from tests.harness.invariants import assert_drained


def admitted(core: EngineCore, now_ms: float = 0.0) -> list[str]:
    return [admission.request_id for admission in core.execute_pass(now_ms).admissions]


def both(engine_type: str, **values: object) -> EngineCore:
    core = make_core(engine_type=engine_type, **values)
    core.receive(make_request("a", prompt=8, output=8))
    core.receive(make_request("b", prompt=8, output=8))
    return core


def test_vllm_admits_by_what_is_known_now_and_preempts_later() -> None:
    core = both("vllm")
    assert admitted(core) == ["a", "b"]
    run_passes(core, 100.0)
    assert core.metrics().vllm_preemptions_total > 0
    assert_drained(core)


def test_trtllm_admits_by_the_whole_future_and_never_preempts() -> None:
    core = both("trtllm")
    results = run_passes(core)
    admissions = [(index, a.request_id) for index, r in enumerate(results) for a in r.admissions]
    assert admissions == [(0, "a"), (8, "b")]
    assert core.metrics().vllm_preemptions_total == 0
    assert_drained(core)


def test_trtllm_counts_what_the_running_ones_still_need() -> None:
    core = make_core(engine_type="trtllm", num_gpu_blocks=8)
    core.receive(make_request("a", prompt=4, output=12))  # 4 blocks in all, 1 held
    core.receive(make_request("b", prompt=4, output=13))  # 5 blocks
    core.receive(make_request("c", prompt=4, output=4))
    assert admitted(core) == ["a"]  # b is the head, and nobody overtakes it


def test_trtllm_takes_active_hits_off_what_it_needs() -> None:
    core = make_core(engine_type="trtllm", num_gpu_blocks=6)
    shared = tuple(range(1, 9))
    core.receive(make_request("a", tokens=(*shared, 50), output=7))  # 4 blocks
    core.receive(make_request("b", tokens=(*shared, 60), output=7))  # 4, of which 2 are a's
    assert admitted(core) == ["a", "b"]


def test_trtllm_clamps_the_output_to_what_the_pool_leaves() -> None:
    core = make_core(engine_type="trtllm")
    core.receive(make_request("long", prompt=20, output=100))
    results = run_passes(core)
    tokens = [signal for result in results for signal in result.outputs]
    assert len(tokens) == 4
    assert not any(signal.rejected for signal in tokens)


def test_trtllm_that_would_have_to_preempt_says_so_loudly() -> None:
    core = both("trtllm", num_gpu_blocks=8)
    assert admitted(core) == ["a", "b"]
    assert core.pool.allocate([], core.pool.free_blocks)  # somebody took what was promised
    with pytest.raises(AssertionError, match="guaranteed-no-evict engine ran out of blocks"):
        run_passes(core)


@pytest.mark.parametrize(
    ("engine_type", "prompt", "output", "rejected"),
    [
        ("vllm", 24, 1, False),
        ("vllm", 25, 1, True),
        ("vllm", 20, 5, False),
        ("vllm", 20, 6, True),
        ("trtllm", 24, 9, False),
        ("trtllm", 25, 1, True),
    ],
)
def test_what_could_never_run_is_rejected(engine_type: str, prompt: int, output: int, rejected: bool) -> None:
    core = make_core(engine_type=engine_type)
    core.receive(make_request("r", prompt=prompt, output=output))
    signals = [signal for result in run_passes(core) for signal in result.outputs]
    assert signals[-1].completed
    assert signals[-1].rejected == rejected
    assert_drained(core)


def test_max_model_len_shortens_what_must_fit() -> None:
    core = make_core(max_model_len=24)
    core.receive(make_request("r", prompt=20, output=600))
    assert len([s for result in run_passes(core) for s in result.outputs if s.token_id is not None]) == 4


@pytest.mark.parametrize(("prompt", "rejected"), [(7, False), (8, True), (9, True)])
def test_prompt_that_reaches_max_model_len_is_rejected(prompt: int, rejected: bool) -> None:
    core = make_core(max_model_len=8)
    core.receive(make_request("r", prompt=prompt, output=1))
    assert core.execute_pass(0.0).outputs[-1].rejected == rejected
