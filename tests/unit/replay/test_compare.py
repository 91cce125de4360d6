"""`mocker compare`: which figures changed, in which direction, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.replay.compare import compare

A: dict[str, Any] = {
    "completed": 10,
    "duration_ms": 1000.0,
    "output_tokens": 500,
    "output_tokens_per_s": 500.0,
    "p99_ttft_ms": 100.0,
    "prefix_reuse_ratio": 0.25,
    "preemptions": 0,
    "wall_s": 0.1,
}


def _files(tmp_path: Path, **changes: Any) -> list[str]:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, values in zip(paths, (A, A | changes), strict=True):
        path.write_text(json.dumps(values))
    return [str(path) for path in paths]


@pytest.mark.parametrize(
    ("name", "b", "percent", "verdict"),
    [
        ("p99_ttft_ms", 50.0, -50.0, "better"),
        ("p99_ttft_ms", 150.0, 50.0, "worse"),
        ("output_tokens_per_s", 600.0, 20.0, "better"),
        ("prefix_reuse_ratio", 0.2, -20.0, "worse"),
        ("completed", 9, -10.0, "worse"),
        ("output_tokens", 400, -20.0, "changed"),
        ("preemptions", 3, None, "worse"),
        ("duration_ms", None, None, "changed"),
        ("duration_ms", 1000.0 + 1e-10, 0.0, "same"),
    ],
)
def test_direction_of_each_figure(name: str, b: Any, percent: float | None, verdict: str) -> None:
    change = next(change for change in compare(A, A | {name: b}) if change.name == name)
    assert change.verdict == verdict
    assert change.percent == (None if percent is None else pytest.approx(percent, abs=1e-6))


def test_only_changes_are_shown_and_the_runs_own_cost_is_no_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *_files(tmp_path, p99_ttft_ms=50.0, wall_s=9.0)]) == 0
    out = capsys.readouterr().out
    assert "-50.00 %  better" in out
    assert "completed" not in out and "wall_s" not in out
    assert "1 better, 0 worse; 7 figures compared." in out


def test_equal_reports_change_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *_files(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("Nothing changed: 7 figures")


def test_all_shows_the_unchanged_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--all", *_files(tmp_path)]) == 0
    assert "completed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "limit", "status"),
    [
        ({"p99_ttft_ms": 104.0}, "5", 0),
        ({"p99_ttft_ms": 106.0}, "5", 1),
        ({"p99_ttft_ms": 10.0}, "5", 0),  # better is no failure
        ({"preemptions": 1}, "5", 1),  # from nothing to something is more than any percentage
    ],
)
def test_fail_over_ends_with_one_where_a_figure_got_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], limit: str, status: int
) -> None:
    assert main(["compare", "--fail-over", limit, *_files(tmp_path, **changes)]) == status
    assert ("worse by more than 5 %" in capsys.readouterr().err) is bool(status)


def test_json_gives_the_changes_as_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["compare", "--json", "--threshold", "10", *_files(tmp_path, completed=5, p99_ttft_ms=105.0)]
    assert main(argv) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"name": "completed", "a": 10, "b": 5, "percent": -50.0, "verdict": "worse"}
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [(None, "can't be read"), ("{", "is not JSON"), ("[]", "is not a report"), ("{}", "is not a report")],
)
def test_mistake_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, part: str
) -> None:
    good, bad = _files(tmp_path)
    Path(bad).unlink()
    if text is not None:
        Path(bad).write_text(text)
    assert main(["compare", good, bad]) == 2
    message = capsys.readouterr().err
    assert part in message and message.count("\n") == 1


def test_negative_threshold_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--threshold", "-1", *_files(tmp_path)]) == 2
    assert "--threshold is -1.0" in capsys.readouterr().err


def test_change_of_ten_times_or_more_is_told_as_a_factor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *_files(tmp_path, p99_ttft_ms=4710.0)]) == 0
    assert "x 47.1  worse" in capsys.readouterr().out
