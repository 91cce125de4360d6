"""The AIConfigurator model: what it asks the package, what it keeps, and a sentence for all that goes wrong.

A stand-in with the same call shape takes its place; the last tests use the package where it is installed.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from mocker_core.errors import ArgumentError
from mocker_core.perf.aic import AiConfiguratorModel
from mocker_core.perf.build import build_perf_model
from tests.factories import make_args
from tests.unit.core.test_perf_model import prompt, work

PLACE = {"model": "acme/large", "system": "h200_sxm"}
Calls = list[tuple[Any, ...]]


class FakeHandle:
    """The engine of the stand-in: counts what it is asked and answers with simple sums."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int = 0) -> float:
        self._calls.append(("prefill", bs, isl, prefix))
        return bs * (isl - prefix) * 0.5

    def predict_decode_latency(self, bs: int, isl: int, osl: int = 2) -> float:
        self._calls.append(("decode", bs, isl, osl))
        if isl > 100_000:
            raise RuntimeError("no data to anchor the query\nsecond line")
        return {666: float("nan"), 3: 0.25}.get(isl, bs * 2.0 + isl * 0.01)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Install the stand-in; what it was asked."""
    asked: Calls = []

    class EngineHandle(FakeHandle):
        @classmethod
        def compile(cls, model_path: str, system: str, backend: str, **more: Any) -> FakeHandle:
            if model_path == "acme/unknown":
                raise KeyError(model_path)
            if more.get("backend_version") == "0.1":
                raise ValueError("0.1 has no slot.\nUse another.")
            asked.append(("compile", model_path, system, backend, more))
            return cls(asked)

    data = {"h200_sxm": {"vllm": ["0.24.0", "0.27.0"], "trtllm": ["1.3.0"]}, "b60": {"vllm": ["0.26.0"]}}
    engine, database = ModuleType("engine"), ModuleType("perf_database")
    engine.__dict__["EngineHandle"] = EngineHandle
    database.__dict__["get_supported_databases"] = lambda: data
    names = ("aiconfigurator", "aiconfigurator.sdk")
    for name in names:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "aiconfigurator.sdk.engine", engine)
    monkeypatch.setitem(sys.modules, "aiconfigurator.sdk.perf_database", database)
    return asked


def test_options_go_to_the_package_and_the_backend_is_vllm_by_default(calls: Calls) -> None:
    timing = {"type": "aiconfigurator", **PLACE, "tp_size": 2, "backend_version": "0.24.0"}
    assert isinstance(build_perf_model(make_args(timing_model=timing)), AiConfiguratorModel)
    more = {"tp_size": 2, "backend_version": "0.24.0"}
    assert calls[0] == ("compile", "acme/large", "h200_sxm", "vllm", more)


def test_prefill_asks_for_batch_mean_prompt_and_mean_cached_part(calls: Calls) -> None:
    batch = work(prefill_batch=3, prefill_mean_isl=300, prefill_mean_prefix=100)
    assert AiConfiguratorModel(PLACE).prefill_ms(batch) == 300.0
    assert calls[-1] == ("prefill", 3, 300, 100)


def test_prefill_without_new_tokens_takes_no_time_and_asks_nothing(calls: Calls) -> None:
    model = AiConfiguratorModel(PLACE)
    asked = len(calls)
    assert model.prefill_ms(prompt(64, prefill_mean_prefix=64)) == 0.0
    assert len(calls) == asked


def test_decode_asks_for_one_step_of_the_batch_and_takes_at_least_a_ms(calls: Calls) -> None:
    model = AiConfiguratorModel(PLACE)
    assert model.decode_ms(work(decode_batch=4, mean_context_tokens=500)) == 13.0
    assert calls[-1] == ("decode", 4, 500, 2)
    assert model.decode_ms(work(decode_batch=4, mean_context_tokens=3)) == 1.0


def test_same_work_is_asked_once_and_different_work_again(calls: Calls) -> None:
    model = AiConfiguratorModel(PLACE)
    asked = len(calls)
    step = work(decode_batch=4, mean_context_tokens=500)
    # What does not enter the estimate does not make a new question.
    assert model.decode_ms(step) == model.decode_ms(step._replace(active_kv_tokens=9, running_requests=7))
    assert len(calls) == asked + 1
    assert model.decode_ms(step._replace(mean_context_tokens=501)) > model.decode_ms(step)
    assert len(calls) == asked + 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "needs the option model, as in"),
        ({"model": "acme/large"}, "needs the option system, as in"),
        (PLACE | {"model": 3}, "timing_model.model is 3; it must be a name"),
        (PLACE | {"backend": ""}, "timing_model.backend is ''; it must be a name"),
        (PLACE | {"tp_size": 0}, "timing_model.tp_size is 0; it must be an integer >= 1"),
        (PLACE | {"tp_size": True}, "timing_model.tp_size is True; it must be an integer >= 1"),
        (PLACE | {"gpus": 8}, "has no option gpus; its options are model, system, backend, "),
        (PLACE | {"system": "h300"}, "timing_model.system is 'h300', .* choose one of b60, h200_sxm"),
        (PLACE | {"backend": "tgi"}, "timing_model.backend is 'tgi', .* choose one of trtllm, vllm"),
        (
            PLACE | {"backend_version": "0.1"},
            r"can't estimate acme/large on h200_sxm with vllm: 0\.1 has no slot; the versions of vllm "
            r"with data for h200_sxm are 0\.24\.0, 0\.27\.0\.$",
        ),
        (PLACE | {"model": "acme/unknown"}, "can't estimate acme/unknown on .*: KeyError 'acme/unknown'; "),
    ],
)
@pytest.mark.usefixtures("calls")
def test_wrong_option_is_refused_with_a_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ArgumentError, match=sentence):
        AiConfiguratorModel(options)


@pytest.mark.usefixtures("calls")
def test_work_without_an_estimate_is_named_in_the_error() -> None:
    model = AiConfiguratorModel(PLACE)
    sentence = (
        "has no estimate for a decode step of 2 requests with 100001 tokens each, for acme/large on "
        "h200_sxm with vllm: no data to anchor the query; choose another model"
    )
    with pytest.raises(ArgumentError, match=sentence):
        model.decode_ms(work(decode_batch=2, mean_context_tokens=100_001))
    with pytest.raises(ArgumentError, match="estimates nan ms for a decode step"):
        model.decode_ms(work(decode_batch=1, mean_context_tokens=666))


def test_missing_package_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "aiconfigurator", None)
    with pytest.raises(ArgumentError, match="install it with pip install aiconfigurator, or choose another"):
        AiConfiguratorModel(PLACE)


@pytest.fixture(scope="module")
def real() -> AiConfiguratorModel:
    pytest.importorskip("aiconfigurator.sdk.engine", reason="the package aiconfigurator is not installed")
    return AiConfiguratorModel({"model": "Qwen/Qwen3-32B", "system": "h200_sxm", "tp_size": 2})


def test_real_package_charges_new_tokens_and_longer_contexts(real: AiConfiguratorModel) -> None:
    whole = real.prefill_ms(prompt(4096))
    assert 0.0 < real.prefill_ms(prompt(4096, prefill_mean_prefix=2048)) < whole
    assert real.prefill_ms(work(prefill_batch=4, prefill_mean_isl=4096)) > 2 * whole
    short = work(decode_batch=64, mean_context_tokens=128)
    assert 1.0 <= real.decode_ms(short) < real.decode_ms(short._replace(mean_context_tokens=32_768))


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"system": "h999"}, "timing_model.system is 'h999', .* choose one of .*h200_sxm"),
        ({"tp_size": 3}, "can't estimate Qwen/Qwen3-32B on h200_sxm with vllm: num_heads 64 should be"),
        ({"backend_version": "0.0.1"}, "can't estimate .* the versions of vllm with data for h200_sxm are "),
    ],
)
def test_real_package_refuses_what_it_has_no_data_for(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ArgumentError, match=sentence):
        AiConfiguratorModel({"model": "Qwen/Qwen3-32B", "system": "h200_sxm"} | options)
