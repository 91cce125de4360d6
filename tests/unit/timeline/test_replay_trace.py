"""`mocker replay --trace-out`: the trace agrees with the rows of the same replay."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from app.cli import main

ROWS = [
    {"timestamp": 40 * index, "input_length": 96, "output_length": 60, "hash_ids": [index, 1000 + index, 7]}
    for index in range(12)
]
TIGHT = {"block_size": 16, "num_gpu_blocks": 24, "speedup_ratio": 1.0}


def replayed(tmp_path: Path, *flags: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The trace's events and the rows."""
    trace, out, rows = (tmp_path / name for name in ("trace.jsonl", "out.json", "rows.jsonl"))
    trace.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    argv = ["replay", str(trace), "--trace-block-size", "32", *flags]
    assert main([*argv, "--trace-out", str(out), "--per-request", str(rows)]) == 0
    document = json.loads(out.read_text())
    return document["traceEvents"], [json.loads(line) for line in rows.read_text().splitlines()]


def phases(events: list[dict[str, Any]]) -> dict[str, list[tuple[str, int, int]]]:
    """Each request's phases as (name, start_us, end_us); the first entry is the request itself."""
    open_at: dict[tuple[str, str], int] = {}
    found: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "b":
            open_at[event["id"], event["name"]] = event["ts"]
        elif event["ph"] == "e":
            found[event["id"]].append((event["name"], open_at.pop((event["id"], event["name"])), event["ts"]))
    assert not open_at
    return found


def test_phases_and_preemptions_agree_with_the_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events, rows = replayed(tmp_path, "--engine-args", json.dumps(TIGHT))
    found = phases(events)
    assert sum(row["preemptions"] for row in rows) > 0
    for row in rows:
        *own, whole = found[f"request {row['trace_index']}"]
        start_us, end_us = round(row["arrival_ms"] * 1000), round(row["last_token_ms"] * 1000)
        assert whole[1:] == (start_us, end_us)
        assert sum(end - start for _, start, end in own) == end_us - start_us
        names = [name for name, _, _ in own]
        assert names.count("preempted") == row["preemptions"]
        assert own[names.index("prefill")][2] == round(row["first_token_ms"] * 1000)
    passes = [event for event in events if event["ph"] == "X"]
    assert sum(event["args"]["output_tokens"] for event in passes) == sum(
        row["output_length"] for row in rows
    )
    assert sum(event["args"]["preempted"] for event in passes) == sum(row["preemptions"] for row in rows)


def test_handoff_shows_as_transfer_between_the_pools(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    roomy = json.dumps({"block_size": 16, "num_gpu_blocks": 512, "kv_bytes_per_token": 100_000})
    events, rows = replayed(tmp_path, "--prefill-engine-args", roomy, "--decode-engine-args", roomy)
    found = phases(events)
    assert len(found) == len(rows)
    for one in found.values():
        names = [name for name, start, end in one[:-1] if end > start]
        assert names.index("prefill") < names.index("transfer") < names.index("decode")
    workers = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert workers == {"prefill worker 0", "decode worker 1"}


def test_file_that_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(json.dumps(ROWS[0]) + "\n")
    assert main(["replay", str(trace), "--trace-out", str(tmp_path / "no" / "out.json")]) != 0
    assert "--trace-out" in capsys.readouterr().err
