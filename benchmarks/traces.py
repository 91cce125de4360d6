"""Traces for the core benchmark: the Mooncake one where it is present, and generated ones.

Generated rows are Mooncake rows with hash blocks of 512 tokens, the same in every run.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

from benchmarks.servers import ROOT

TRACE_BLOCK_SIZE = 512
_MOONCAKE = "mooncake_conversation.jsonl"

Row = dict[str, Any]


def mooncake_path() -> Path | None:
    """MOCKER_BENCH_TRACE, else traces/ of MOCKER_SHARED_DIR or of `shared` beside the checkout; or None."""
    named = os.environ.get("MOCKER_BENCH_TRACE")
    if named:
        return Path(named)
    shared = Path(os.environ.get("MOCKER_SHARED_DIR") or ROOT.parent / "shared")
    path = shared / "traces" / _MOONCAKE
    return path if path.is_file() else None


def decode_heavy(requests: int) -> list[Row]:
    """Short unique prompts, long answers, about 250 running: the cost of a steady decode pass."""
    rng = random.Random("decode-heavy")
    rows: list[Row] = []
    at_ms = 0.0
    for _ in range(requests):
        at_ms += rng.expovariate(1 / 40.0)
        rows.append(
            {
                "timestamp": round(at_ms, 3),
                "input_length": rng.randint(32, 256),
                "output_length": rng.randint(512, 1024),
                "hash_ids": [],
            }
        )
    return rows


def prefix_heavy(requests: int) -> list[Row]:
    """Long prompts that share most blocks within 24 families, short answers: the cost of the cache."""
    rng = random.Random("prefix-heavy")
    families = [[family * 1000 + index for index in range(rng.randint(8, 24))] for family in range(24)]
    rows: list[Row] = []
    at_ms, own_id = 0.0, 1_000_000
    for _ in range(requests):
        at_ms += rng.expovariate(1 / 60.0)
        shared = rng.choice(families)
        own = rng.randint(1, 3)
        hash_ids = [*shared, *range(own_id, own_id + own)]
        own_id += own
        rows.append(
            {
                "timestamp": round(at_ms, 3),
                "input_length": len(hash_ids) * TRACE_BLOCK_SIZE - rng.randint(0, TRACE_BLOCK_SIZE - 1),
                "output_length": rng.randint(4, 32),
                "hash_ids": hash_ids,
            }
        )
    return rows


def write_trace(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
