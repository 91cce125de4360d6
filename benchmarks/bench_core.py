"""(d) The core alone, in virtual time: the Mooncake conversation trace, a decode-heavy, a prefix-heavy one.

Reference: the plain engine of tests/reference in the same run, whose results must be equal; and, with
--baseline REF, the core of an earlier commit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.core_run import FACTS
from benchmarks.report import Figure, compared
from benchmarks.rounds import Options, say
from benchmarks.servers import ROOT, SERVER_CPU, pin
from benchmarks.traces import decode_heavy, mooncake_path, prefix_heavy, write_trace

TIME_TARGET = 0.3
MEMORY_TARGET_MB = 600.0
# Sums in another order differ in their last bits, and over hours of virtual time those add up.
_TOLERANCE_MS = 1e-4
_QUICK_ROWS = 1000
_FULL_ROWS = 4000


@dataclass(frozen=True, slots=True)
class CoreRun:
    """One replay. Seconds of wall clock and of CPU; peak memory of its process."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    requests: int
    tokens: int
    facts: list[list[Any]]


def run(options: Options) -> list[Figure]:
    figures: list[Figure] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        size = _QUICK_ROWS if options.quick else _FULL_ROWS
        traces = {
            "decode-heavy": write_trace(folder / "decode.jsonl", decode_heavy(size)),
            "prefix-heavy": write_trace(folder / "prefix.jsonl", prefix_heavy(size)),
        }
        mooncake = options.trace or mooncake_path()
        if mooncake is None:
            say("core: no Mooncake trace (MOCKER_BENCH_TRACE names one); only generated traces are replayed")
        else:
            traces["mooncake"] = _head(mooncake, folder, _QUICK_ROWS) if options.quick else mooncake
        for label, trace in traces.items():
            figures += _compare(label, trace, folder, options)
    return figures


def _head(trace: Path, folder: Path, rows: int) -> Path:
    head = folder / "head.jsonl"
    with trace.open(encoding="utf-8") as lines:
        head.write_text("".join(islice(lines, rows)), encoding="utf-8")
    return head


def _compare(label: str, trace: Path, folder: Path, options: Options) -> list[Figure]:
    say(f"core: {label}, {options.rounds} rounds")
    mine: list[CoreRun] = []
    plain: list[CoreRun] = []
    for _ in range(options.rounds):
        mine.append(_run("ours", trace, folder))
        # The plain engine is slow and its time varies little: once is enough on a full trace.
        if options.quick or not plain:
            plain.append(_run("plain", trace, folder))
    plain += [plain[-1]] * (len(mine) - len(plain))
    target = TIME_TARGET if label == "mooncake" else None
    what = f"{label}, {mine[0].requests:,} requests, {mine[0].tokens:,} tokens"
    differences = _differences(mine[0], plain[0])
    figures = [
        compared(
            "core",
            f"{what}, time",
            "s",
            [run.cpu_s for run in mine],
            [run.cpu_s for run in plain],
            wanted="ratio<=" if target else "",
            target=target,
            note="CPU time",
        ),
        compared(
            "core",
            f"{label}, simulated tokens per s",
            "tokens/s",
            [run.tokens / run.cpu_s for run in mine],
            [run.tokens / run.cpu_s for run in plain],
        ),
        compared(
            "core",
            f"{label}, requests per s",
            "req/s",
            [run.requests / run.cpu_s for run in mine],
            [run.requests / run.cpu_s for run in plain],
        ),
        Figure(
            bench="core",
            what=f"{label}, rows that differ from the plain engine's",
            unit="",
            ours=float(len(differences)),
            wanted="value==",
            target=0.0,
            note=differences[0] if differences else f"times within {_TOLERANCE_MS:g} ms",
        ),
        Figure(
            bench="core",
            what=f"{label}, peak memory",
            unit="MB",
            ours=max(run.peak_bytes for run in mine) / 1e6,
            reference=max(run.peak_bytes for run in plain) / 1e6,
            wanted="value<=",
            target=MEMORY_TARGET_MB,
        ),
    ]
    if options.baseline:
        figures.append(_against_baseline(label, trace, folder, options, mine))
    return figures


def _against_baseline(label: str, trace: Path, folder: Path, options: Options, mine: list[CoreRun]) -> Figure:
    """The same trace on the core of an earlier commit."""
    checkout = folder / "baseline"
    if not checkout.exists():
        checkout.mkdir()
        archive = subprocess.run(
            ["git", "archive", str(options.baseline), "mocker_core"],
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
        )
        subprocess.run(["tar", "-x", "-C", str(checkout)], input=archive.stdout, check=True)
        (checkout / "benchmarks").symlink_to(ROOT / "benchmarks")
    before = [_run("ours", trace, folder, checkout) for _ in mine]
    return compared(
        "core",
        f"{label}, time against {options.baseline}",
        "s",
        [run.cpu_s for run in mine],
        [run.cpu_s for run in before],
    )


def _run(kind: str, trace: Path, folder: Path, checkout: Path = ROOT) -> CoreRun:
    rows = folder / "rows.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.core_run", kind, str(trace), str(rows)],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        preexec_fn=lambda: pin(SERVER_CPU),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return CoreRun(**json.loads(done.stdout), facts=json.loads(rows.read_text(encoding="utf-8")))


def _differences(mine: CoreRun, plain: CoreRun) -> list[str]:
    """One sentence per row that is not the same."""
    found = []
    for index, (row, other) in enumerate(zip(mine.facts, plain.facts, strict=True)):
        for name, value, expected in zip(FACTS, row, other, strict=True):
            same = value == expected
            if not same and isinstance(value, float) and isinstance(expected, float):
                same = abs(value - expected) <= _TOLERANCE_MS
            if not same:
                found.append(f"row {index}: {name} is {value}, the plain engine has {expected}")
                break
    return found
