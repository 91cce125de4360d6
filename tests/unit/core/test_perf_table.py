"""The interpolated model: values on, between and beyond the measured points, and its refusals."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest

from mocker_core.errors import ArgumentError
from mocker_core.perf.table import InterpolatedModel
from tests.unit.core.test_perf_model import prompt, work

numpy = pytest.importorskip("numpy", reason="the interpolated model needs the optional numpy")

PROFILE: dict[str, Any] = {
    "prefill_isl": [100, 200, 400],
    "prefill_ttft_ms": [10.0, 30.0, 50.0],
    "decode_active_kv_tokens": [1000, 2000],
    "decode_context_length": [100, 300],
    "decode_itl": [[4.0, 8.0], [6.0, 14.0]],
}


def save(folder: Path, **changes: Any) -> str:
    arrays = {name: value for name, value in (PROFILE | changes).items() if value is not None}
    path = folder / "profile.npz"
    numpy.savez(path, **arrays)
    return str(path)


@pytest.mark.parametrize(
    ("tokens", "expected_ms"),
    [(100, 10.0), (150, 20.0), (200, 30.0), (300, 40.0), (400, 50.0), (600, 70.0), (60, 2.0), (10, 0.0)],
)
def test_prefill_is_linear_between_points_and_goes_on_beyond_the_edges(
    tmp_path: Path, tokens: int, expected_ms: float
) -> None:
    assert InterpolatedModel(save(tmp_path)).prefill_ms(prompt(tokens)) == pytest.approx(expected_ms)


def test_prefill_is_over_all_new_tokens_of_the_batch(tmp_path: Path) -> None:
    batch = work(prefill_batch=3, prefill_mean_isl=80, prefill_mean_prefix=30)
    assert InterpolatedModel(save(tmp_path)).prefill_ms(batch) == pytest.approx(20.0)
    nothing_new = work(prefill_batch=2, prefill_mean_isl=80, prefill_mean_prefix=80)
    assert InterpolatedModel(save(tmp_path)).prefill_ms(nothing_new) == 0.0


@pytest.mark.parametrize(
    ("active", "context", "expected_ms"),
    [
        (1000, 100, 4.0),
        (2000, 300, 14.0),
        (1000, 200, 6.0),
        (1500, 100, 5.0),
        (1500, 200, 8.0),
        (3000, 100, 8.0),
        (1000, 500, 12.0),
        (3000, 500, 32.0),
        (0, 0, 2.0),
    ],
)
def test_decode_is_bilinear_and_goes_on_beyond_the_edges(
    tmp_path: Path, active: int, context: int, expected_ms: float
) -> None:
    model = InterpolatedModel(save(tmp_path))
    point = work(decode_batch=1, active_kv_tokens=active, mean_context_tokens=context)
    assert model.decode_ms(point) == pytest.approx(expected_ms)


def test_decode_never_takes_less_than_one_ms(tmp_path: Path) -> None:
    model = InterpolatedModel(save(tmp_path, decode_itl=[[0.1, 0.2], [0.3, 0.4]]))
    assert model.decode_ms(work(decode_batch=1, active_kv_tokens=1000, mean_context_tokens=100)) == 1.0


def test_axis_of_one_point_is_constant(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        prefill_isl=[100],
        prefill_ttft_ms=[7.0],
        decode_active_kv_tokens=[1],
        decode_context_length=[1],
        decode_itl=[[3.0]],
    )
    model = InterpolatedModel(path)
    assert model.prefill_ms(prompt(9999)) == 7.0
    assert model.decode_ms(work(decode_batch=1, active_kv_tokens=500, mean_context_tokens=50)) == 3.0


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"decode_itl": None}, "lacks the array decode_itl; it needs prefill_isl, prefill_ttft_ms"),
        ({"prefill_isl": [[1, 2]]}, "prefill_isl in .* must be 1-D, finite and not empty"),
        ({"prefill_ttft_ms": []}, "prefill_ttft_ms in .* must be 1-D, finite and not empty"),
        ({"decode_itl": [1.0, 2.0]}, "decode_itl in .* must be 2-D, finite and not empty"),
        ({"prefill_ttft_ms": [1, float("nan"), 3]}, "prefill_ttft_ms in .* must be 1-D, finite"),
        ({"prefill_isl": [100, 100, 400]}, "prefill_isl in .* must rise strictly"),
        ({"decode_context_length": [300, 100]}, "decode_context_length in .* must rise strictly"),
        ({"decode_itl": [[1.0, 2.0]]}, r"do not fit each other: decode_itl must have the shape \(2, 2\)"),
        ({"prefill_ttft_ms": [1.0, 2.0]}, "do not fit each other"),
        ({"prefill_isl": ["a", "b", "c"]}, "prefill_isl in .* must be"),
    ],
)
def test_profile_that_does_not_fit_is_refused_with_a_sentence(
    tmp_path: Path, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ArgumentError, match=sentence):
        InterpolatedModel(save(tmp_path, **changes))


def test_missing_file_is_refused_by_its_path(tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentError, match=r"timing_model.path is '.*nowhere.npz'; there is no such .npz file"
    ):
        InterpolatedModel(str(tmp_path / "nowhere.npz"))


@pytest.mark.parametrize("content", [b"", b"not a zip archive at all"])
def test_file_that_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "profile.npz"
    path.write_bytes(content)
    with pytest.raises(ArgumentError, match=r"is not a readable \.npz file"):
        InterpolatedModel(str(path))


def test_truncated_archive_is_refused(tmp_path: Path) -> None:
    path = Path(save(tmp_path))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ArgumentError, match=r"is not a readable \.npz file"):
        InterpolatedModel(str(path))


def test_single_array_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "profile.npy"
    numpy.save(path, numpy.array([1.0]))
    with pytest.raises(ArgumentError, match=r"is not a readable \.npz file"):
        InterpolatedModel(str(path))


def test_missing_numpy_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def no_numpy(name: str, *rest: Any, **more: Any) -> Any:
        if name == "numpy":
            raise ImportError(name)
        return real_import(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", no_numpy)
    with pytest.raises(ArgumentError, match=r"needs numpy.*install llm-mocker\[interpolated\]"):
        InterpolatedModel("profile.npz")
