"""Polynomial, fixed and constant timing (engine.md section 5)."""

from __future__ import annotations

from random import Random

import pytest

from mocker_core.perf.model import ConstantArgs, ConstantModel, FixedModel, PassWork, PolynomialModel


def work(**values: int) -> PassWork:
    empty = PassWork(
        prefill_batch=0,
        prefill_mean_isl=0,
        prefill_mean_prefix=0,
        decode_batch=0,
        active_kv_tokens=0,
        mean_context_tokens=0,
        total_kv_tokens=1000,
        running_requests=1,
    )
    return empty._replace(**values)


def prompt(tokens: int, **values: int) -> PassWork:
    return work(prefill_batch=1, prefill_mean_isl=tokens, **values)


@pytest.mark.parametrize(
    ("tokens", "expected_ms"),
    [(1, 16.51660382), (1000, 32.1058489), (8192, 169.13685)],
)
def test_polynomial_prefill_is_quadratic_in_new_tokens(tokens: int, expected_ms: float) -> None:
    assert PolynomialModel().prefill_ms(prompt(tokens)) == pytest.approx(expected_ms, abs=1e-4)


def test_polynomial_prefill_counts_the_batch_and_leaves_the_prefix_out() -> None:
    model = PolynomialModel()
    batch = work(prefill_batch=3, prefill_mean_isl=300, prefill_mean_prefix=65)
    assert model.prefill_ms(batch) == model.prefill_ms(prompt(705))


def test_polynomial_prefill_of_nothing_new_is_free() -> None:
    assert (
        PolynomialModel().prefill_ms(work(prefill_batch=2, prefill_mean_isl=8, prefill_mean_prefix=8)) == 0.0
    )


@pytest.mark.parametrize(
    ("active", "expected_ms"),
    [(0, 5.74), (500, 26.31), (1000, 34.01), (5000, 34.01), (100, 10.8836)],
)
def test_polynomial_decode_follows_kv_use_up_to_a_full_pool(active: int, expected_ms: float) -> None:
    model = PolynomialModel()
    assert model.decode_ms(work(decode_batch=1, active_kv_tokens=active)) == pytest.approx(expected_ms)


def test_fixed_model_knows_no_load() -> None:
    model = FixedModel(7.0, 2.0)
    assert model.prefill_ms(prompt(1)) == model.prefill_ms(prompt(9000)) == 7.0
    assert model.decode_ms(work(decode_batch=200, active_kv_tokens=999)) == 2.0


def test_constant_model_adds_time_per_new_prompt_token() -> None:
    args = ConstantArgs(time_to_first_token_ms=100, prefill_time_per_token_ms=0.5, inter_token_latency_ms=8)
    model = ConstantModel(args, Random(1), max_num_seqs=4)
    assert model.prefill_ms(prompt(20, prefill_mean_prefix=8)) == 106.0
    assert model.decode_ms(work(decode_batch=1)) == 8.0


def test_constant_model_stretches_linearly_from_one_request_to_a_full_batch() -> None:
    args = ConstantArgs(time_to_first_token_ms=10, inter_token_latency_ms=10, time_factor_under_load=3.0)
    model = ConstantModel(args, Random(1), max_num_seqs=5)
    decode = [model.decode_ms(work(decode_batch=n, running_requests=n)) for n in (1, 2, 3, 5, 9)]
    assert decode == pytest.approx([10.0, 15.0, 20.0, 30.0, 30.0])
    assert model.prefill_ms(prompt(1, running_requests=5)) == pytest.approx(30.0)


def test_constant_model_with_room_for_one_is_never_under_load() -> None:
    args = ConstantArgs(inter_token_latency_ms=10, time_factor_under_load=3.0)
    assert ConstantModel(args, Random(1), max_num_seqs=1).decode_ms(work(decode_batch=1)) == 10.0


def draws(seed: int) -> list[float]:
    args = ConstantArgs(
        time_to_first_token_ms=100,
        time_to_first_token_std_dev_ms=25,
        inter_token_latency_ms=10,
        inter_token_latency_std_dev_ms=4,
    )
    model = ConstantModel(args, Random(seed), max_num_seqs=4)
    return [model.prefill_ms(prompt(1)) for _ in range(300)] + [
        model.decode_ms(work(decode_batch=1)) for _ in range(300)
    ]


def test_constant_model_deviates_by_the_seed_alone() -> None:
    assert draws(1) == draws(1)
    assert draws(1) != draws(2)


def test_constant_model_deviation_is_spread_and_cut_at_seventy_and_hundred_thirty_percent() -> None:
    prefill, decode = draws(1)[:300], draws(1)[300:]
    assert (min(prefill), max(prefill)) == pytest.approx((70.0, 130.0))
    assert (min(decode), max(decode)) == pytest.approx((7.0, 13.0))
    assert sum(prefill) / 300 == pytest.approx(100.0, abs=5.0)
    assert len(set(prefill)) > 150
