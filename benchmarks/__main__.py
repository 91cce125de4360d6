"""`python -m benchmarks [NAMES] [--quick] [--json OUT]`: runs all or the named ones and prints one table."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import bench_core, bench_nonstream, bench_pacing, bench_startup, bench_stream
from benchmarks.report import Figure, machine, table, write_json
from benchmarks.rounds import Options, say

BENCHMARKS: dict[str, Callable[[Options], list[Figure]]] = {
    "stream": bench_stream.run,
    "nonstream": bench_nonstream.run,
    "pacing": bench_pacing.run,
    "core": bench_core.run,
    "startup": bench_startup.run,
}


STREAMS = (100, 500, 1000, 2000)
QUICK_STREAMS = (100, 500)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 well, 1 if a benchmark could not run, 3 if --check was given and a target was missed."""
    parser = _parser()
    chosen = parser.parse_args(argv)
    unknown = [name for name in chosen.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"{unknown[0]} is not a benchmark; they are {', '.join(BENCHMARKS)}.")
    options = Options(
        quick=chosen.quick,
        rounds=chosen.rounds or (1 if chosen.quick else 3),
        window_s=chosen.seconds or (1.5 if chosen.quick else 3.0),
        streams=tuple(chosen.streams or (QUICK_STREAMS if chosen.quick else STREAMS)),
        trace=chosen.trace,
        baseline=chosen.baseline,
        flags=tuple(chosen.flag),
    )
    if chosen.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    figures: list[Figure] = []
    failed = False
    for name in chosen.names or BENCHMARKS:
        began_s = time.monotonic()
        try:
            figures += BENCHMARKS[name](options)
        except (RuntimeError, OSError) as error:
            failed = True
            say(f"{name}: could not be measured: {error}")
        say(f"{name}: {time.monotonic() - began_s:.0f} s")
    facts = machine()
    python, load = facts["python"], facts["load_average"][0]
    print(f"{facts['cpu']}, {facts['cpus']} CPUs, Python {python}, load average {load:.2f}\n")
    print(table(figures))
    if chosen.json:
        write_json(chosen.json, figures, {key: str(value) for key, value in asdict(options).items()})
    if failed:
        return 1
    return 3 if chosen.check and any(figure.met is False for figure in figures) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"any of {', '.join(BENCHMARKS)}; all by default"
    )
    parser.add_argument("--quick", action="store_true", help="one short round, shorter traces")
    parser.add_argument("--rounds", type=int, help="rounds of each measurement (3; 1 if quick)")
    parser.add_argument("--seconds", type=float, help="length of a measured window (3; 1.5 if quick)")
    parser.add_argument("--streams", type=int, nargs="+", help="numbers of streams for pacing")
    parser.add_argument("--trace", type=Path, help="the trace of the core benchmark instead of Mooncake's")
    parser.add_argument("--baseline", metavar="REF", help="also replay on the core of this commit or tag")
    parser.add_argument(
        "--flag", action="append", default=[], help="a further flag of `mocker serve` (--flag=--x=1)"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every figure with its rounds")
    parser.add_argument(
        "--realtime", action="store_true", help="run before all else on a busy machine (needs the privilege)"
    )
    parser.add_argument("--check", action="store_true", help="exit 3 if a target was missed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
