"""One pass as the outside sees it: times, outputs, admissions, metrics, refusals, cancellation."""

from __future__ import annotations

from typing import Any

import pytest

from mocker_core.engine.core import EngineCore
from mocker_core.errors import DuplicateIdError, RequestError
from mocker_core.events import AdmissionEvent, BlocksStored, OutputSignal
from mocker_core.metrics import LengthStats, MockerMetrics
from mocker_core.request import RequestId
from tests.factories import make_args, make_core, make_request, run_passes
from tests.harness.invariants import assert_drained, assert_invariants

FIXED = {"type": "fixed", "prefill_ms": 10, "decode_ms": 3}
R = RequestId("r")


def test_first_token_comes_with_the_prefill_and_each_further_one_with_a_decode() -> None:
    core = make_core(timing_model=FIXED)
    core.receive(make_request(output_token_ids=(71, 72, 73)))
    results = run_passes(core)
    assert [result.end_ms for result in results] == [10.0, 13.0, 16.0]
    assert [result.outputs for result in results] == [
        [OutputSignal(R, 71, False)],
        [OutputSignal(R, 72, False)],
        [OutputSignal(R, 73, True)],
    ]
    assert results[0].admissions == [AdmissionEvent(R, 0)]
    assert_drained(core)


def test_facts_of_a_finished_request() -> None:
    core = make_core(timing_model=FIXED)
    core.receive(make_request(output=3))
    (facts,) = run_passes(core, 100.0)[-1].finished
    assert (facts.first_admit_ms, facts.first_token_ms, facts.last_token_ms) == (100.0, 110.0, 116.0)
    assert (facts.output_tokens, facts.reused_input_tokens, facts.preemptions) == (3, 0, 0)


def test_prefill_and_decode_of_one_pass_add_up() -> None:
    core = make_core(timing_model=FIXED)
    core.receive(make_request("a", output=9))
    core.execute_pass(0.0)
    core.receive(make_request("b", output=9))
    assert core.execute_pass(10.0).end_ms == 23.0


def test_request_that_ends_with_its_prefill_and_no_token_comes_before_those_that_sample() -> None:
    core = make_core(timing_model=FIXED)
    core.receive(make_request("a", output=2))
    core.receive(make_request("none", output=0))
    core.receive(make_request("too long", prompt=25))
    assert core.execute_pass(0.0).outputs == [
        OutputSignal(RequestId("none"), None, True),
        OutputSignal(RequestId("a"), core_token(core, "a"), False),
        OutputSignal(RequestId("too long"), None, True, rejected=True),
    ]


def core_token(core: Any, name: str) -> int:
    return int(core.requests[RequestId(name)].output[0])


def test_empty_pass_takes_no_time_and_makes_no_progress() -> None:
    core = make_core()
    before = core.metrics()
    result = core.execute_pass(5.0)
    assert result.end_ms == 5.0
    assert not result.made_progress(before)
    assert result.kv_events == ()


def test_unplanned_output_is_a_function_of_run_seed_and_request_id() -> None:
    def tokens(seed: int, name: str) -> list[int | None]:
        core = make_core(seed=seed)
        core.receive(make_request(name, start=1, output=3))
        return [signal.token_id for result in run_passes(core) for signal in result.outputs]

    assert tokens(0, "a") == tokens(0, "a")
    assert len({tuple(tokens(0, "a")), tuple(tokens(1, "a")), tuple(tokens(0, "b"))}) == 3


def test_planned_output_decides_the_length() -> None:
    core = make_core()
    core.receive(make_request(output=9, output_token_ids=(5, 6)))
    assert [s.token_id for r in run_passes(core) for s in r.outputs] == [5, 6]


@pytest.mark.parametrize(("fields", "got"), [({"tokens": ()}, "0 and 2"), ({"output": -1}, "4 and -1")])
def test_request_without_prompt_or_with_negative_output_is_refused(fields: dict[str, Any], got: str) -> None:
    core = make_core()
    with pytest.raises(RequestError, match=f"at least 1 prompt token and max_tokens >= 0; it has {got}"):
        core.receive(make_request(**fields))
    assert_drained(core)


def test_live_id_is_refused_and_may_be_used_again_after_its_end() -> None:
    core = make_core()
    core.receive(make_request())
    with pytest.raises(DuplicateIdError, match="request id r is in use"):
        core.receive(make_request())
    run_passes(core)
    core.receive(make_request())
    assert core.cancel(R, 0.0)


@pytest.mark.parametrize("passes", [0, 1, 2])
def test_cancel_frees_everything_wherever_the_request_is(passes: int) -> None:
    core = make_core(max_num_batched_tokens=4)
    core.receive(make_request(prompt=7, output=5))
    for now in range(passes):
        core.execute_pass(float(now))
    assert core.cancel(R, 9.0)
    assert_drained(core)
    assert not core.cancel(R, 9.0)


def test_metrics_tell_blocks_queues_and_rank() -> None:
    core = make_core(dp_rank=3, max_num_seqs=1)
    core.receive(make_request("a", prompt=6, output=3))
    core.receive(make_request("b", prompt=6, output=3))
    assert core.execute_pass(0.0).metrics == MockerMetrics(3, 2, 6, 2 / 6, 1, 1, 0)


def test_kv_events_of_a_pass_come_with_it_and_carry_the_tokens() -> None:
    core = make_core()
    core.receive(make_request(tokens=(1, 2, 3, 4, 5), output_token_ids=(6, 7, 8, 9)))
    results = run_passes(core)
    stored = [event for result in results for event in result.kv_events]
    assert all(isinstance(event, BlocksStored) for event in stored)
    tokens = [list(block.token_ids or ()) for event in stored for block in event.blocks]  # type: ignore[union-attr]
    assert tokens == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert [len(result.kv_events) for result in results] == [1, 0, 0, 1]


@pytest.mark.parametrize("off", [{"enable_kv_events": False}, {"enable_prefix_caching": False}])
def test_no_kv_event_where_nobody_wants_one_or_nothing_is_cached(off: dict[str, bool]) -> None:
    core = make_core(**off)
    core.receive(make_request(prompt=9, output=9))
    assert all(result.kv_events == () for result in run_passes(core))
    assert core.take_kv_events() == ()


def test_full_hit_without_output_computes_nothing_and_ends_at_once() -> None:
    core = make_core(timing_model=FIXED)
    tokens = (1, 2, 3, 4, 5, 6, 7, 8)
    core.receive(make_request("first", tokens=tokens, output=1))
    core.execute_pass(0.0)
    core.receive(make_request("again", tokens=tokens, output=0))
    result = core.execute_pass(10.0)
    assert result.end_ms == 10.0
    assert result.outputs == [OutputSignal(RequestId("again"), None, True)]
    assert result.admissions == [AdmissionEvent(RequestId("again"), 8)]
    assert result.fpm is not None
    assert (result.fpm.scheduled_prefill, result.fpm.scheduled_decode) == (LengthStats(), LengthStats())


def test_snapshot_tells_what_is_computed_and_what_waits() -> None:
    core = make_core(num_gpu_blocks=12, max_num_batched_tokens=9, timing_model=FIXED)
    core.receive(make_request("a", tokens=(1, 2, 3, 4, 5), output=5))
    core.execute_pass(0.0)
    core.receive(make_request("b", tokens=(1, 2, 3, 4, 9, 9), output=5))
    core.receive(make_request("c", prompt=10, output=5))
    core.receive(make_request("d", prompt=3, output=5))
    fpm = core.execute_pass(10.0).fpm
    assert fpm is not None
    assert (fpm.pass_index, fpm.start_ms, fpm.wall_time_ms, fpm.dp_rank) == (2, 10.0, 13.0, 0)
    assert fpm.scheduled_prefill == LengthStats(2, 8, 4.0)  # 2 of b behind its hit, 6 of c
    assert fpm.scheduled_decode == LengthStats(1, 6, 0.0)
    assert fpm.queued_prefill == LengthStats(1, 3, 0.0)
    assert fpm.queued_decode == LengthStats()
    assert fpm.prefill_cached_tokens == 4


def test_snapshot_counts_preempted_requests_as_queued_decodes() -> None:
    core = make_core()
    for name in "abc":
        core.receive(make_request(name, prompt=8, output=9))
    core.execute_pass(0.0)
    fpm = core.execute_pass(1.0).fpm
    assert fpm is not None
    assert fpm.queued_decode == LengthStats(1, 9, 0.0)
    assert_invariants(core)


def test_snapshot_is_left_out_on_request() -> None:
    core = EngineCore(make_args(), collect_fpm=False)
    core.receive(make_request())
    assert core.execute_pass(0.0).fpm is None
