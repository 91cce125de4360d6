"""`mocker replay`: the files it writes, the table it shows, and how it tells mistakes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.replay.output import ProgressBar
from mocker_core.engine.replay_report import DISAGGREGATED_ROW_KEYS, ROW_KEYS
from tests.shared_cases import load_bundled_case, row_differences

REPORT_KEYS = (
    [
        "completed",
        "rejected",
        "duration_ms",
        "input_tokens",
        "output_tokens",
        "output_tokens_per_s",
        "requests_per_s",
    ]
    + [
        f"{statistic}_{name}_ms"
        for name in ("ttft", "itl", "e2e")
        for statistic in ("mean", "p50", "p90", "p95", "p99")
    ]
    + ["prefix_reuse_ratio", "preemptions", "wall_s"]
)


def _write_trace(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def _replay(
    tmp_path: Path, *flags: str, trace: list[dict[str, Any]]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    report, rows = tmp_path / "report.json", tmp_path / "rows.jsonl"
    argv = ["replay", _write_trace(tmp_path / "trace.jsonl", trace), *flags]
    assert main([*argv, "--report", str(report), "--per-request", str(rows)]) == 0
    return json.loads(report.read_text()), [json.loads(line) for line in rows.read_text().splitlines()]


def test_known_case_gives_its_known_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = load_bundled_case("micro_preempt")
    flags = [
        "--engine-args",
        json.dumps(case.engine_args),
        "--trace-block-size",
        str(case.replay["trace_block_size"]),
    ]
    report, rows = _replay(tmp_path, *flags, trace=case.trace)
    assert row_differences(case, rows) == []
    assert all(list(row) == list(ROW_KEYS) for row in rows)
    assert list(report) == REPORT_KEYS
    assert report["preemptions"] == 3
    assert report["duration_ms"] == pytest.approx(6373.825, abs=0.01)
    assert "3" in capsys.readouterr().out.split("preemptions")[1]


def test_disaggregated_case_gives_its_known_rows(tmp_path: Path) -> None:
    case = load_bundled_case("micro_disagg_kvbw")
    flags = ["--prefill-engine-args", json.dumps(case.prefill_engine_args)]
    decode = tmp_path / "decode.json"
    decode.write_text(json.dumps(case.decode_engine_args))
    flags += ["--decode-engine-args", str(decode), "--trace-block-size", str(case.replay["trace_block_size"])]
    _, rows = _replay(tmp_path, *flags, trace=case.trace)
    assert row_differences(case, rows) == []
    assert all(list(row) == [*ROW_KEYS, *DISAGGREGATED_ROW_KEYS] for row in rows)


def test_rejected_row_has_every_key_and_the_replay_goes_on(tmp_path: Path) -> None:
    trace = [
        {"timestamp": 0, "input_length": 6, "output_length": 9, "hash_ids": [1]},
        {"timestamp": 0, "input_length": 4, "output_length": 2, "hash_ids": [2]},
    ]
    flags = ["--engine-args", '{"num_gpu_blocks": 3, "block_size": 4}', "--trace-block-size", "8"]
    report, rows = _replay(tmp_path, *flags, trace=trace)
    assert (report["completed"], report["rejected"]) == (1, 1)
    assert rows[0] == dict.fromkeys(ROW_KEYS) | {
        "trace_index": 0,
        "arrival_ms": 0.0,
        "input_length": 6,
        "output_length": 0,
        "preemptions": 0,
        "status": "rejected",
    }
    assert rows[1]["status"] == "completed"


def test_itl_percentiles_are_over_single_gaps(tmp_path: Path) -> None:
    """Fixed decode of 2 ms; the second request's prefill of 50 ms stretches exactly one gap of the first."""
    trace = [
        {"timestamp": 0, "input_length": 4, "output_length": 101, "hash_ids": [1]},
        {"timestamp": 60, "input_length": 4, "output_length": 1, "hash_ids": [2]},
    ]
    model = {"timing_model": {"type": "fixed", "prefill_ms": 50, "decode_ms": 2}}
    report, _ = _replay(tmp_path, "--engine-args", json.dumps(model), trace=trace)
    assert report["p50_itl_ms"] == pytest.approx(2.0)
    assert report["p99_itl_ms"] == pytest.approx(52.0)
    assert report["mean_itl_ms"] == pytest.approx((99 * 2 + 52) / 100)


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--engine-args", "{"], "--engine-args is not valid JSON"),
        (["--engine-args", "no-such-file"], "neither a JSON object nor a readable file"),
        (["--engine-args", '{"block_sise": 4}'], "Did you mean block_size?"),
        (["--engine-args", '{"block_size": 1}'], "block_size is 1; it must be a whole number >= 2"),
        (["--engine-args", '{"timing_model": "warp"}'], "timing_model.type is 'warp'"),
        (["--concurrency", "0"], "concurrency is 0"),
        (["--num-workers", "0"], "num_workers is 0"),
        (["--trace-block-size", "0"], "trace block size is 0"),
        (["--prefill-engine-args", "{}", "--num-workers", "2"], "use --prefill-engine-args"),
        (["--num-prefill-workers", "2"], "give --prefill-engine-args and --decode-engine-args too"),
        (["--prefill-engine-args", '{"block_size": 4}'], "block_size is 4 for prefill and 64 for decode"),
        (
            ["--engine-args", '{"enable_chunked_prefill": false, "max_num_batched_tokens": 2}'],
            "can never be scheduled",
        ),
        (["--report", "/dev/null/x"], "can't be written"),
    ],
)
def test_mistake_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], part: str
) -> None:
    trace = _write_trace(tmp_path / "t.jsonl", [{"timestamp": 0, "input_length": 4, "output_length": 1}])
    assert main(["replay", trace, *flags]) == 2
    message = capsys.readouterr().err
    assert part in message
    assert message.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("{", "trace line 2 is not JSON"),
        ("[1]", "trace line 2 is list"),
        ('{"timestamp": -1, "input_length": 1, "output_length": 1}', "timestamp is -1"),
        ('{"timestamp": 0, "input_length": 0, "output_length": 1}', "input_length is 0"),
        ('{"timestamp": 0, "input_length": 1}', "output_length is None"),
        ('{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": ["a"]}', "hash_ids must be"),
    ],
)
def test_wrong_trace_line_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, part: str
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"timestamp": 0, "input_length": 1, "output_length": 1}\n' + line + "\n")
    assert main(["replay", str(path)]) == 2
    assert part in capsys.readouterr().err


def test_progress_bar_is_silent_without_a_terminal() -> None:
    stream = io.StringIO()
    with ProgressBar(2, stream) as bar:
        bar.advance(1)
    assert stream.getvalue() == ""


def test_progress_bar_shows_requests_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr("app.replay.output._REDRAW_S", 0.0)
    with ProgressBar(4, stream) as bar:
        bar.advance(1)
    assert "1/4 requests" in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")
