"""Replay cases with known results: the shared directory's, where it is present, and the bundled ones.

The shared directory is `MOCKER_SHARED_DIR`, or `shared` beside the checkout. The bundled cases are a few
small ones of the same kind under tests/data/oracle, so that a bare clone checks the same rules.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT_DIR = Path(__file__).resolve().parent.parent
SHARED_DIR = Path(os.environ.get("MOCKER_SHARED_DIR") or CHECKOUT_DIR.parent / "shared")
ORACLE_DIR = SHARED_DIR / "oracle"
BUNDLED_DIR = CHECKOUT_DIR / "tests" / "data" / "oracle"
SKIP_REASON = "the shared oracle is absent; set MOCKER_SHARED_DIR to the directory that holds oracle/"

HANDOFF_TIME_KEYS = (
    "prefill_admit_ms",
    "source_held_ms",
    "destination_reserved_ms",
    "destination_activated_ms",
    "source_released_ms",
    "decode_admit_ms",
)
TIME_KEYS = ("arrival_ms", "first_admit_ms", "first_token_ms", "last_token_ms", *HANDOFF_TIME_KEYS)
COUNT_KEYS = ("output_length", "reused_input_tokens", "preemptions", "status")
TOLERANCE_MS = 0.01

_ENGINE_NAMES = {
    "backend": "engine_type",
    "num_gpu_blocks": "num_gpu_blocks",
    "block_size": "block_size",
    "max_model_len": "max_model_len",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "enable_prefix_caching": "enable_prefix_caching",
    "enable_chunked_prefill": "enable_chunked_prefill",
    "speedup_ratio": "speedup_ratio",
    "decode_speedup_ratio": "decode_speedup_ratio",
    "preemption_mode": "preemption_mode",
    "worker_type": "worker_type",
    "kv_transfer_bytes_per_token": "kv_bytes_per_token",
    "kv_transfer_bandwidth": "kv_transfer_bandwidth",
    "kv_transfer_timing_mode": "kv_transfer_timing_mode",
}


@dataclass(frozen=True, slots=True)
class ReplayCase:
    """One replay with its known rows. Engine arguments have the product's names, null ones left out.

    Aggregated cases set `engine_args`; disaggregated ones set both `prefill_` and `decode_engine_args`.
    `replay` holds trace_block_size and, where used, concurrency and num_workers. Expected rows have the
    keys of a replay's per-request rows, without those that follow from others.
    """

    name: str
    engine_args: dict[str, Any] | None
    prefill_engine_args: dict[str, Any] | None
    decode_engine_args: dict[str, Any] | None
    replay: dict[str, Any]
    trace: list[dict[str, Any]]
    expected: list[dict[str, Any]]

    @property
    def disaggregated(self) -> bool:
        return self.prefill_engine_args is not None


def shared_case_names() -> list[str]:
    """Names of all shared cases; empty where the shared directory is absent."""
    if not ORACLE_DIR.is_dir():
        return []
    return sorted(path.parent.name for path in ORACLE_DIR.glob("*/report.json"))


def aggregated_case_names() -> list[str]:
    return [name for name in shared_case_names() if not _is_disaggregated(name)]


def disaggregated_case_names() -> list[str]:
    return [name for name in shared_case_names() if _is_disaggregated(name)]


def bundled_case_names() -> list[str]:
    return sorted(path.stem for path in BUNDLED_DIR.glob("*.json"))


def load_shared_case(name: str) -> ReplayCase:
    given = _read(ORACLE_DIR / name / "args.json")
    config, replay = given["normalized_config"], given["replay_kwargs"]
    options = {
        "trace_block_size": replay["trace_block_size"],
        "concurrency": replay.get("replay_concurrency"),
        "num_workers": replay.get("num_workers"),
    }
    lines = (ORACLE_DIR / name / "trace.jsonl").read_text(encoding="utf-8").splitlines()
    report = _read(ORACLE_DIR / name / "report.json")
    disaggregated = given["disaggregated"]
    return ReplayCase(
        name=name,
        engine_args=None if disaggregated else _engine_args(config["engine"]),
        prefill_engine_args=_engine_args(config["prefill"]["engine"]) if disaggregated else None,
        decode_engine_args=_engine_args(config["decode"]["engine"]) if disaggregated else None,
        replay={key: value for key, value in options.items() if value is not None},
        trace=[json.loads(line) for line in lines if line.strip()],
        expected=[_expected_row(row) for row in report["per_request"]],
    )


def load_bundled_case(name: str) -> ReplayCase:
    data = _read(BUNDLED_DIR / f"{name}.json")
    return ReplayCase(
        name=name,
        engine_args=data.get("engine_args"),
        prefill_engine_args=data.get("prefill_engine_args"),
        decode_engine_args=data.get("decode_engine_args"),
        replay=data["replay"],
        trace=data["trace"],
        expected=data["expected"],
    )


def row_differences(case: ReplayCase, rows: list[dict[str, Any]]) -> list[str]:
    """What differs between a replay's rows and the known ones, one sentence each; empty if nothing.

    Times may differ by TOLERANCE_MS, everything else by nothing. Requests with the same arrival and
    lengths are interchangeable, so each such group is compared in order of its times.
    """
    found = {row["trace_index"]: row for row in rows}
    if sorted(found) != sorted(row["trace_index"] for row in case.expected) or len(rows) != len(found):
        return [f"{case.name}: the rows are not those of the trace"]
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in case.expected:
        requested = case.trace[row["trace_index"]]["output_length"]
        groups.setdefault((row["arrival_ms"], row["input_length"], requested), []).append(row)
    differences: list[str] = []
    for group in groups.values():
        ours = sorted((found[row["trace_index"]] for row in group), key=_time_order)
        for expected, actual in zip(sorted(group, key=_time_order), ours, strict=True):
            differences += _compare_row(case, expected, actual)
    return differences


def _compare_row(case: ReplayCase, expected: dict[str, Any], actual: dict[str, Any]) -> list[str]:
    differences = []
    for key in (*TIME_KEYS, *COUNT_KEYS):
        if key in HANDOFF_TIME_KEYS and not case.disaggregated:
            continue
        want, got = expected.get(key), actual[key]
        if want is None or got is None or key in COUNT_KEYS:
            same = want == got
        else:
            same = abs(want - got) <= TOLERANCE_MS
        if not same:
            differences.append(f"{case.name} row {expected['trace_index']}: {key} is {got}, expected {want}")
    return differences


def _time_order(row: dict[str, Any]) -> tuple[float, float]:
    first, last = row.get("first_token_ms"), row.get("last_token_ms")
    return (float("inf") if first is None else first, float("inf") if last is None else last)


def _is_disaggregated(name: str) -> bool:
    return bool(_read(ORACLE_DIR / name / "args.json")["disaggregated"])


def _engine_args(engine: dict[str, Any]) -> dict[str, Any]:
    if engine["timing_model"] != {"type": "polynomial"}:
        raise ValueError(f"timing model {engine['timing_model']} is not one the cases use")
    return {ours: engine[theirs] for theirs, ours in _ENGINE_NAMES.items() if engine[theirs] is not None}


def _expected_row(row: dict[str, Any]) -> dict[str, Any]:
    admissions = row.get("admission_history", [])
    expected = {
        "trace_index": row["trace_index"],
        "arrival_ms": row["arrival_time_ms"],
        "first_admit_ms": row.get("first_admit_ms"),
        "first_token_ms": row.get("first_token_ms"),
        "last_token_ms": row.get("last_token_ms"),
        "input_length": row["input_length"],
        "output_length": row["output_length"],
        "reused_input_tokens": admissions[0]["reused_input_tokens"] if admissions else None,
        "preemptions": row["readmission_count"],
        "status": row["terminal_status"],
    }
    return expected | {key: row[key] for key in HANDOFF_TIME_KEYS if key in row}


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
