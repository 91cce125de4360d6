"""Timing by NVIDIA's AIConfigurator: measured kernels of a GPU system put together for a model.

Owns the one call that builds its engine and the two that ask it. The package is imported only when this
model is chosen; it may fetch a model's config.json, so nothing here knows whether the network is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Protocol

from mocker_core.errors import ArgumentError
from mocker_core.perf.model import PassWork

_REQUIRED = ("model", "system")
_NAMES = (
    *_REQUIRED,
    "backend",
    "backend_version",
    "gemm_quant_mode",
    "moe_quant_mode",
    "kvcache_quant_mode",
    "fmha_quant_mode",
)
_SIZES = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
OPTIONS = (*_NAMES, *_SIZES)
_ASIDE = "choose another model, such as polynomial"
_KEPT_ANSWERS = 4096


class _Engine(Protocol):
    """What this module uses of aiconfigurator.sdk.engine.EngineHandle; times in ms."""

    def predict_prefill_latency(self, bs: int, isl: int, prefix: int) -> float: ...

    def predict_decode_latency(self, bs: int, isl: int, osl: int) -> float: ...


class AiConfiguratorModel:
    """AIConfigurator's own estimate of a prefill pass and of a decode step.

    Raises ArgumentError, here and for a pass, if the package is missing, an option is wrong, or there is no
    data for this model on this system.
    """

    def __init__(self, options: Mapping[str, object]) -> None:
        chosen = _checked({"backend": "vllm"} | dict(options))
        self._what = f"{chosen['model']} on {chosen['system']} with {chosen['backend']}"
        self._engine = _compile(chosen, self._what)
        self._prefill_ms = lru_cache(_KEPT_ANSWERS)(self._ask_prefill)
        self._decode_ms = lru_cache(_KEPT_ANSWERS)(self._ask_decode)
        # A system without the model's number format is found only by asking.
        self._prefill_ms(1, 128, 0)
        self._decode_ms(1, 128)

    def prefill_ms(self, work: PassWork) -> float:
        if work.prefill_batch <= 0 or work.prefill_mean_isl <= work.prefill_mean_prefix:
            return 0.0
        return self._prefill_ms(work.prefill_batch, work.prefill_mean_isl, work.prefill_mean_prefix)

    def decode_ms(self, work: PassWork) -> float:
        return max(1.0, self._decode_ms(work.decode_batch, work.mean_context_tokens))

    def _ask_prefill(self, batch: int, isl: int, prefix: int) -> float:
        return self._answer(
            f"a prefill of {batch} x {isl} tokens, {prefix} of them cached",
            lambda: self._engine.predict_prefill_latency(batch, isl, prefix),
        )

    def _ask_decode(self, batch: int, context_tokens: int) -> float:
        # osl counts the prefill's token too: 2 is one decode step.
        return self._answer(
            f"a decode step of {batch} requests with {context_tokens} tokens each",
            lambda: self._engine.predict_decode_latency(batch, context_tokens, 2),
        )

    def _answer(self, question: str, ask: Callable[[], float]) -> float:
        try:
            answer_ms = float(ask())
        except Exception as error:
            raise ArgumentError(
                f"timing_model aiconfigurator has no estimate for {question}, for {self._what}: "
                f"{_reason(error)}; {_ASIDE}."
            ) from error
        if not math.isfinite(answer_ms):
            raise ArgumentError(
                f"timing_model aiconfigurator estimates {answer_ms} ms for {question}, for {self._what}; "
                f"{_ASIDE}."
            )
        return max(0.0, answer_ms)


def _checked(options: Mapping[str, object]) -> dict[str, str | int]:
    checked: dict[str, str | int] = {}
    for name, value in options.items():
        if name in _NAMES:
            if not isinstance(value, str) or not value:
                raise ArgumentError(f"timing_model.{name} is {value!r}; it must be a name.")
            checked[name] = value
        elif name in _SIZES:
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ArgumentError(f"timing_model.{name} is {value!r}; it must be an integer >= 1.")
            checked[name] = value
        else:
            raise ArgumentError(
                f"timing_model aiconfigurator has no option {name}; its options are {', '.join(OPTIONS)}."
            )
    for name in _REQUIRED:
        if name not in checked:
            raise ArgumentError(
                f'timing_model aiconfigurator needs the option {name}, as in "model": "Qwen/Qwen3-32B", '
                '"system": "h200_sxm".'
            )
    return checked


def _compile(options: Mapping[str, str | int], what: str) -> _Engine:
    try:
        from aiconfigurator.sdk.engine import EngineHandle
        from aiconfigurator.sdk.perf_database import get_supported_databases
    except ImportError as error:
        raise ArgumentError(
            f"timing_model aiconfigurator needs the package aiconfigurator, 0.12 or later ({error}); "
            f"install it with pip install aiconfigurator, or {_ASIDE}."
        ) from error
    system, backend = str(options["system"]), str(options["backend"])
    known: Mapping[str, Mapping[str, list[str]]] = get_supported_databases()
    for kind, name, names in (("system", system, known), ("backend", backend, known.get(system, {}))):
        if name not in names:
            raise ArgumentError(
                f"timing_model.{kind} is {name!r}, for which aiconfigurator has no data; "
                f"choose one of {', '.join(sorted(names))}."
            )
    rest = {name: value for name, value in options.items() if name not in ("model", "system", "backend")}
    try:
        engine: _Engine = EngineHandle.compile(options["model"], system, backend, **rest)
    except Exception as error:
        raise ArgumentError(
            f"timing_model aiconfigurator can't estimate {what}: {_reason(error)}; the versions of {backend} "
            f"with data for {system} are {', '.join(known[system][backend])}."
        ) from error
    return engine


def _reason(error: Exception) -> str:
    """The first line of what the package says, which may be a bare key or nothing."""
    first = (str(error).strip().splitlines() or [""])[0].rstrip(".; ")
    return first if " " in first else f"{type(error).__name__} {first}".rstrip()
