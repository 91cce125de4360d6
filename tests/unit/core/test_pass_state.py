from __future__ import annotations

from mocker_core.events import PrefillChunk
from mocker_core.request import RequestId
from mocker_core.sched.pass_state import Given, PassState
from tests.unit.core.test_queue import make_state


def sums(state: PassState) -> tuple[int, int, int, int]:
    return state.budget, state.batch, state.batch_isl, state.batch_prefix


def test_what_is_given_is_taken_off_the_budget_and_summed_up_for_the_price() -> None:
    state = PassState(0.0, 100)
    state.give(make_state("a", 0), Given(10, 20, 10), priced=True)
    state.give(make_state("b", 1), Given(5, 0, 5), priced=True)
    assert sums(state) == (85, 2, 35, 20)


def test_tokens_without_prompt_work_and_unpriced_ones_cost_budget_only() -> None:
    state = PassState(0.0, 100)
    state.give(make_state("decode", 0), Given(1, 8, 0), priced=True)
    state.give(make_state("elsewhere", 1), Given(7, 0, 7), priced=False)
    assert sums(state) == (92, 0, 0, 0)


def test_taking_back_undoes_giving_and_twice_is_harmless() -> None:
    state = PassState(0.0, 100)
    victim, other = make_state("a", 0), make_state("b", 1)
    state.give(victim, Given(10, 20, 10), priced=True)
    state.give(other, Given(5, 0, 5), priced=True)
    state.take_back(victim, priced=True)
    state.take_back(victim, priced=True)
    assert sums(state) == (95, 1, 5, 0)


def test_chunks_name_prompt_work_and_recompute_but_no_single_decode() -> None:
    state = PassState(0.0, 100)
    for name, given in (("a", Given(1, 3, 1)), ("b", Given(1, 4, 0)), ("c", Given(6, 4, 0))):
        state.give(make_state(name, 0), given, priced=True)
    assert state.prefill_chunks() == [PrefillChunk(RequestId("a"), 1), PrefillChunk(RequestId("c"), 6)]
