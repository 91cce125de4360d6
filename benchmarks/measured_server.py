"""Our server with its lateness histogram replaced by a fine one in a shared file (bench_pacing).

python -m benchmarks.measured_server LATENESS_FILE [flags of `mocker serve`]
"""

from __future__ import annotations

import sys
from pathlib import Path

import app.dispatch
from app.cli import main
from app.lateness import LatenessHistogram
from benchmarks.lateness_map import LatenessMap


def measure_into(lateness: LatenessMap) -> None:
    """Every dispatcher made from now on counts into `lateness` instead of its own histogram."""

    class SharedHistogram(LatenessHistogram):
        __slots__ = ()

        def observe(self, lateness_ms: float, tokens: int) -> None:
            lateness.observe(lateness_ms, tokens)

    setattr(app.dispatch, "LatenessHistogram", SharedHistogram)  # noqa: B010


if __name__ == "__main__":
    measure_into(LatenessMap(Path(sys.argv[1])))
    sys.exit(main(["serve", *sys.argv[2:]]))
