"""One replay in a process of its own: `python -m benchmarks.core_run ours|plain TRACE ROWS_OUT`.

Writes the rows' facts to ROWS_OUT and one line of JSON (seconds, memory, counts) to stdout. `ours` is the
`mocker_core` on the path, so an earlier release of it can be measured too.
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.traces import TRACE_BLOCK_SIZE

# What must be equal in both engines, row by row.
FACTS = (
    "first_admit_ms",
    "first_token_ms",
    "last_token_ms",
    "output_length",
    "reused_input_tokens",
    "preemptions",
)


def run_ours(trace: Path) -> tuple[float, list[list[Any]]]:
    from mocker_core.engine.offline import OfflineReplay
    from mocker_core.engine_args import MockEngineArgs
    from mocker_core.trace import parse_trace

    with trace.open(encoding="utf-8") as lines:
        rows = list(parse_trace(lines))
    began_s = time.perf_counter()
    replay = OfflineReplay(rows, MockEngineArgs(), trace_block_size=TRACE_BLOCK_SIZE)
    replay.run()
    wall_s = time.perf_counter() - began_s
    return wall_s, [[getattr(row, name) for name in FACTS] for row in replay.rows]


def run_plain(trace: Path) -> tuple[float, list[list[Any]]]:
    from tests.reference.plain_replay import plain_replay

    rows = [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]
    began_s = time.perf_counter()
    done = plain_replay(rows, trace_block_size=TRACE_BLOCK_SIZE)
    wall_s = time.perf_counter() - began_s
    return wall_s, [[row[name] for name in FACTS] for row in done]


def main() -> None:
    kind, trace, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    cpu_s = time.process_time()
    wall_s, facts = (run_plain if kind == "plain" else run_ours)(trace)
    cpu_s = time.process_time() - cpu_s
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    gc.disable()
    out.write_text(json.dumps(facts), encoding="utf-8")
    tokens = sum(row[FACTS.index("output_length")] for row in facts)
    print(
        json.dumps(
            {"wall_s": wall_s, "cpu_s": cpu_s, "peak_bytes": memory, "requests": len(facts), "tokens": tokens}
        )
    )


if __name__ == "__main__":
    main()
