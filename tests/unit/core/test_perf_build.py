"""From the timing_model argument to a model; every wrong option stops start-up with a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mocker_core.errors import ArgumentError
from mocker_core.perf import aic, table
from mocker_core.perf.build import TIMING_MODELS, build_perf_model
from mocker_core.perf.model import ConstantArgs, ConstantModel, FixedModel, PolynomialModel
from tests.factories import make_args, make_core, make_request
from tests.unit.core.test_perf_model import prompt, work


def build(dp_rank: int = 0, seed: int = 0, **timing: Any) -> Any:
    return build_perf_model(make_args(timing_model=timing, seed=seed, max_num_seqs=3), dp_rank)


def test_polynomial_is_the_default() -> None:
    assert isinstance(build_perf_model(make_args()), PolynomialModel)


def test_fixed_takes_its_two_times_and_zero_for_what_is_missing() -> None:
    model = build(type="fixed", prefill_ms=4)
    assert isinstance(model, FixedModel)
    assert (model.prefill_ms(prompt(1)), model.decode_ms(work(decode_batch=1))) == (4.0, 0.0)


def test_constant_is_at_full_load_with_max_num_seqs_running() -> None:
    model = build(type="constant", inter_token_latency_ms=10, time_factor_under_load=2)
    assert isinstance(model, ConstantModel)
    assert model.decode_ms(work(decode_batch=3, running_requests=3)) == 20.0


def test_constant_draws_differ_by_run_seed_and_by_rank_only() -> None:
    timing: dict[str, Any] = {
        "type": "constant",
        "inter_token_latency_ms": 10,
        "inter_token_latency_std_dev_ms": 2,
    }

    def first(**where: int) -> float:
        model = build(**where, **timing)
        return float(model.decode_ms(work(decode_batch=1)))

    assert first() == first()
    assert len({first(), first(seed=1), first(dp_rank=1)}) == 3


@pytest.mark.parametrize(
    ("timing", "sentence"),
    [
        ({"type": "magic"}, "timing_model.type is 'magic'; it must be one of polynomial, fixed, constant"),
        ({"type": "polynomial", "a": 1}, "timing_model polynomial has no option a; it takes no options"),
        ({"type": "fixed", "ttft": 1}, "timing_model fixed has no option ttft; its options are prefill_ms"),
        (
            {"type": "fixed", "prefill_ms": -1},
            "timing_model.prefill_ms is -1; it must be a finite number >= 0",
        ),
        ({"type": "fixed", "decode_ms": "1"}, "timing_model.decode_ms is '1'; it must be a finite number"),
        ({"type": "fixed", "decode_ms": True}, "timing_model.decode_ms is True; it must be a finite number"),
        ({"type": "fixed", "decode_ms": 10**400}, "timing_model.decode_ms is 1000"),
        ({"type": "constant", "time_factor_under_load": float("nan")}, "time_factor_under_load is nan"),
        ({"type": "constant", "itl": 1}, "timing_model constant has no option itl"),
        ({"type": "interpolated"}, 'takes exactly one option, "path"'),
        ({"type": "interpolated", "path": 3}, 'takes exactly one option, "path"'),
        ({"type": "interpolated", "path": "x.npz", "scale": 1}, 'takes exactly one option, "path"'),
        ({"type": "aiconfigurator"}, "timing_model aiconfigurator needs the option model"),
    ],
)
def test_wrong_model_is_refused_with_a_sentence(timing: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ArgumentError, match=sentence):
        build(**timing)


@pytest.mark.parametrize(
    ("speedup", "decode_speedup", "prefill_ms", "decode_ms"),
    [(1, 1, 12, 6), (2, 1, 6, 3), (2, 3, 6, 1), (1, 3, 12, 2), (0, 3, 12, 6), (2, 0, 6, 6)],
)
def test_prefill_is_divided_by_speedup_and_decode_by_the_product_and_zero_scales_nothing(
    speedup: float, decode_speedup: float, prefill_ms: float, decode_ms: float
) -> None:
    timing = {"type": "fixed", "prefill_ms": 12, "decode_ms": 6}
    core = make_core(speedup_ratio=speedup, decode_speedup_ratio=decode_speedup, timing_model=timing)
    core.receive(make_request())
    first = core.execute_pass(0.0)
    second = core.execute_pass(first.end_ms)
    assert first.end_ms == prefill_ms
    assert second.end_ms - first.end_ms == decode_ms


def test_document_names_every_model_and_option() -> None:
    page = (Path(__file__).parents[3] / "docs" / "timing-models.md").read_text(encoding="utf-8")
    assert [name for name in TIMING_MODELS if f"\n## {name}" not in page] == []
    assert [
        name for name in (*ConstantArgs._fields, *aic.OPTIONS, *table.ARRAYS) if f"`{name}`" not in page
    ] == []
