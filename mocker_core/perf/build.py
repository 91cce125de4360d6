"""Turns the `timing_model` argument into a `PerfModel`. No silent fallback: a wrong model stops start-up."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from mocker_core import rng
from mocker_core.engine_args import MockEngineArgs
from mocker_core.errors import ArgumentError
from mocker_core.perf.aic import AiConfiguratorModel
from mocker_core.perf.model import ConstantArgs, ConstantModel, FixedModel, PerfModel, PolynomialModel
from mocker_core.perf.table import InterpolatedModel

TIMING_MODELS = ("polynomial", "fixed", "constant", "interpolated", "aiconfigurator")


def build_perf_model(args: MockEngineArgs, dp_rank: int = 0) -> PerfModel:
    """The model that `args.timing_model` names. Raises ArgumentError naming the wrong part."""
    options = dict(args.timing_model)
    kind = options.pop("type")
    if kind == "polynomial":
        _numbers(kind, options, ())
        return PolynomialModel()
    if kind == "fixed":
        numbers = _numbers(kind, options, ("prefill_ms", "decode_ms"))
        return FixedModel(numbers.get("prefill_ms", 0.0), numbers.get("decode_ms", 0.0))
    if kind == "constant":
        constant = ConstantArgs(**_numbers(kind, options, ConstantArgs._fields))
        batch = args.max_num_seqs if args.max_num_seqs is not None else args.num_gpu_blocks
        return ConstantModel(constant, rng.stream(args.seed, "timing", dp_rank), batch)
    if kind == "interpolated":
        path = options.pop("path", None)
        if not isinstance(path, str) or options:
            raise ArgumentError('timing_model interpolated takes exactly one option, "path": an .npz file.')
        return InterpolatedModel(path)
    if kind == "aiconfigurator":
        return AiConfiguratorModel(options)
    raise ArgumentError(f"timing_model.type is {kind!r}; it must be one of {', '.join(TIMING_MODELS)}.")


def _numbers(kind: str, options: Mapping[str, object], names: tuple[str, ...]) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for name, value in options.items():
        if name not in names:
            allowed = f"its options are {', '.join(names)}" if names else "it takes no options"
            raise ArgumentError(f"timing_model {kind} has no option {name}; {allowed}.")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        # The comparison also refuses NaN and an integer that no float holds.
        if not number or not 0 <= value <= sys.float_info.max:  # type: ignore[operator]
            raise ArgumentError(f"timing_model.{name} is {value!r}; it must be a finite number >= 0.")
        numbers[name] = float(value)  # type: ignore[arg-type]
    return numbers
