"""Interpolated timing from a measured profile (.npz). numpy is an optional extra, imported only here."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

from mocker_core.errors import ArgumentError
from mocker_core.perf.model import PassWork

ARRAYS = {
    "prefill_isl": 1,
    "prefill_ttft_ms": 1,
    "decode_active_kv_tokens": 1,
    "decode_context_length": 1,
    "decode_itl": 2,
}


class InterpolatedModel:
    """Linear over total new prompt tokens; bilinear over (active KV tokens, mean context). Edges extrapolate.

    Raises ArgumentError if numpy or the file is missing or the arrays do not fit.
    """

    def __init__(self, path: str) -> None:
        arrays = _load(path)
        self._isl, self._ttft_ms = arrays["prefill_isl"], arrays["prefill_ttft_ms"]
        self._kv, self._context = arrays["decode_active_kv_tokens"], arrays["decode_context_length"]
        self._itl_ms = arrays["decode_itl"]

    def prefill_ms(self, work: PassWork) -> float:
        tokens = work.prefill_batch * (work.prefill_mean_isl - work.prefill_mean_prefix)
        if tokens <= 0:
            return 0.0
        low, share = _bracket(self._isl, float(tokens))
        return max(0.0, _between(self._ttft_ms[low], self._ttft_ms[_next(self._isl, low)], share))

    def decode_ms(self, work: PassWork) -> float:
        row, row_share = _bracket(self._kv, float(work.active_kv_tokens))
        column, share = _bracket(self._context, float(work.mean_context_tokens))
        right, below = _next(self._context, column), _next(self._kv, row)
        upper = _between(self._itl_ms[row][column], self._itl_ms[row][right], share)
        lower = _between(self._itl_ms[below][column], self._itl_ms[below][right], share)
        return max(1.0, _between(upper, lower, row_share))


def _bracket(axis: list[float], value: float) -> tuple[int, float]:
    """Index of the segment for `value` and the position in it; outside the axis the edge segment goes on."""
    if len(axis) == 1:
        return 0, 0.0
    low = 0
    while low < len(axis) - 2 and value > axis[low + 1]:
        low += 1
    return low, (value - axis[low]) / (axis[low + 1] - axis[low])


def _next(axis: list[float], low: int) -> int:
    return min(low + 1, len(axis) - 1)


def _between(left: float, right: float, share: float) -> float:
    return left + (right - left) * share


def _load(path: str) -> dict[str, Any]:
    try:
        import numpy
    except ImportError:
        raise ArgumentError(
            "timing_model interpolated needs numpy, which is not installed; "
            "install llm-mocker[interpolated] or choose the polynomial model."
        ) from None
    if not Path(path).is_file():
        raise ArgumentError(f"timing_model.path is {path!r}; there is no such .npz file.")
    try:
        with ZipFile(path):  # a single .npy array or a damaged file ends here
            pass
        with numpy.load(path, allow_pickle=False) as data:
            arrays = {name: data[name] for name in ARRAYS if name in data.files}
    except (OSError, ValueError, BadZipFile) as error:
        raise ArgumentError(f"timing_model.path {path!r} is not a readable .npz file: {error}.") from None
    for name, dimensions in ARRAYS.items():
        if name not in arrays:
            raise ArgumentError(
                f"timing_model.path {path!r} lacks the array {name}; it needs {', '.join(ARRAYS)}."
            )
        array = arrays[name]
        right = array.ndim == dimensions and array.size and array.dtype.kind in "iuf"
        if not right or not numpy.isfinite(array).all():
            raise ArgumentError(f"{name} in {path!r} must be {dimensions}-D, finite and not empty.")
    for name in ("prefill_isl", "decode_active_kv_tokens", "decode_context_length"):
        if (numpy.diff(arrays[name]) <= 0).any():
            raise ArgumentError(f"{name} in {path!r} must rise strictly.")
    shape = (arrays["decode_active_kv_tokens"].size, arrays["decode_context_length"].size)
    if arrays["decode_itl"].shape != shape or arrays["prefill_isl"].size != arrays["prefill_ttft_ms"].size:
        raise ArgumentError(
            f"the arrays in {path!r} do not fit each other: decode_itl must have the shape {shape}."
        )
    return {name: array.astype(float).tolist() for name, array in arrays.items()}
