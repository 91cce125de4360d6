"""INV-11 to INV-13: the same input gives the same output, and the core's options change no decision."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mocker_core.engine.core import EngineCore
from mocker_core.engine_args import MockEngineArgs
from mocker_core.errors import MockerError
from mocker_core.sched.output import EnginePassResult
from tests.property import strategies
from tests.property.engine_pair import Ask
from tests.property.profiles import examples

Script = list[tuple[int, Ask]]


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    """Requests and the pass before which each comes."""
    count = draw(st.integers(1, 8))
    return [(draw(st.integers(0, 12)), draw(strategies.asks(f"r{index}"))) for index in range(count)]


def run(args: dict[str, Any], script: Script, **options: bool) -> list[EnginePassResult]:
    core = EngineCore(MockEngineArgs.from_mapping(args | {"enable_kv_events": True}), **options)
    results: list[EnginePassResult] = []
    now_ms, last = 0.0, max(when for when, _ in script)
    for number in range(400):
        for when, ask in script:
            if when == number:
                core.receive(ask.real(local=True))
        before = core.metrics()
        result = core.execute_pass(now_ms)
        results.append(result)
        now_ms = result.end_ms
        if number >= last and result.end_ms == result.start_ms and not result.made_progress(before):
            break
    return results


@given(strategies.engine_args(), scripts())
@examples(25)
def test_same_input_gives_the_same_output_and_the_same_times(args: dict[str, Any], script: Script) -> None:
    assert run(args, script) == run(args, script)


@given(strategies.engine_args(), scripts())
@examples(40)
def test_leaving_signals_and_snapshots_out_changes_no_decision(args: dict[str, Any], script: Script) -> None:
    full = run(args, script)
    lean = run(args, script, emit_tokens=False, collect_fpm=False)
    for a, b in zip(full, lean, strict=True):
        assert (a.end_ms, a.admissions, a.metrics, a.finished) == (
            b.end_ms,
            b.admissions,
            b.metrics,
            b.finished,
        )
        assert (a.preempted, a.kv_events, a.lifecycle) == (b.preempted, b.kv_events, b.lifecycle)
        assert sorted(a.gaps) == sorted(b.gaps)
        assert [o for o in a.outputs if o.completed] == [o for o in b.outputs if o.completed]
        assert b.fpm is None


@given(strategies.engine_args(), scripts())
@examples(40)
def test_answers_gaps_and_snapshots_add_up(args: dict[str, Any], script: Script) -> None:
    results = run(args, script)
    planned = {ask.request_id: ask.output for _, ask in script}
    answers: dict[str, list[int]] = {name: [] for name in planned}
    stamps: dict[str, list[float]] = {name: [] for name in planned}
    budget = args["max_num_batched_tokens"]
    for result in results:
        for signal in result.outputs:
            if signal.token_id is not None:
                answers[signal.request_id].append(signal.token_id)
                stamps[signal.request_id].append(result.end_ms)
        assert result.fpm is not None
        prefill, decode = result.fpm.scheduled_prefill, result.fpm.scheduled_decode
        assert result.fpm.wall_time_ms == result.end_ms - result.start_ms
        assert budget is None or prefill.sum_tokens + decode.count <= budget
        assert prefill.variance >= 0 and decode.variance >= 0
    for name, tokens in answers.items():
        # The output is what was planned, as far as it came; a preemption neither repeats nor loses a token.
        assert tuple(tokens) == planned[name][: len(tokens)]
    gaps = sorted(gap_ms for result in results for gap_ms, count in result.gaps for _ in range(count))
    told = sorted(b - a for times in stamps.values() for a, b in pairwise(times))
    assert len(gaps) == len(told)
    assert all(abs(a - b) < 1e-6 for a, b in zip(gaps, told, strict=True))


@given(strategies.engine_args(), scripts(), st.data())
@examples(40)
def test_refused_request_changes_nothing(args: dict[str, Any], script: Script, data: st.DataObject) -> None:
    core = EngineCore(MockEngineArgs.from_mapping(args))
    for _, ask in script:
        core.receive(ask.real(local=True))
    core.execute_pass(0.0)
    live = sorted(core.requests)
    again = data.draw(st.sampled_from(live)) if live else "none"
    tokens = (1, 2) if live else ()
    before = core.metrics()
    try:
        core.receive(Ask(again, tokens, (3,)).real(local=True))
    except MockerError:
        pass
    else:
        raise AssertionError("a live id or an empty prompt was taken")
    assert core.metrics() == before
    assert sorted(core.requests) == live
