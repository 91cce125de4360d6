"""What a replay shows and writes: the table, the progress bar, JSON files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TextIO

from mocker_core.errors import ArgumentError

Number = float | int | None

_BAR_CELLS = 30
_REDRAW_S = 0.1


class ProgressBar:
    """Requests done of `total`, redrawn in place; silent where `stream` is not a terminal."""

    def __init__(self, total: int, stream: TextIO) -> None:
        self._total = total
        self._stream = stream
        self._shown = stream.isatty()
        self._done = 0
        self._started_s = self._drawn_s = time.monotonic()

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def advance(self, count: int) -> None:
        self._done += count
        if not self._shown or (now_s := time.monotonic()) - self._drawn_s < _REDRAW_S:
            return
        self._drawn_s = now_s
        filled = _BAR_CELLS * self._done // self._total
        bar = "█" * filled + "░" * (_BAR_CELLS - filled)
        elapsed_s = now_s - self._started_s
        self._stream.write(f"\r{bar} {self._done}/{self._total} requests, {elapsed_s:.1f} s")
        self._stream.flush()


def render_table(report: Mapping[str, Number]) -> str:
    """The report for a person: counts, rates and a table of latencies."""
    lines = [
        f"requests        {_number(report['completed'])} completed, {_number(report['rejected'])} rejected",
        f"simulated time  {_seconds(report['duration_ms'])} (replayed in {report['wall_s']:.2f} s)",
        f"tokens          {_number(report['input_tokens'])} in, {_number(report['output_tokens'])} out",
        f"throughput      {_rate(report['output_tokens_per_s'])} output tokens/s, "
        f"{_rate(report['requests_per_s'])} requests/s",
        f"prefix reuse    {_percent(report['prefix_reuse_ratio'])}",
        f"preemptions     {_number(report['preemptions'])}",
        "",
        f"{'ms':<6}" + "".join(f"{name:>14}" for name in ("mean", "p50", "p90", "p95", "p99")),
    ]
    for name in ("ttft", "itl", "e2e"):
        cells = (
            _rate(report[f"{statistic}_{name}_ms"]) for statistic in ("mean", "p50", "p90", "p95", "p99")
        )
        lines.append(f"{name.upper():<6}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines) + "\n"


def write_json(path: Path, report: Mapping[str, Number]) -> None:
    """The report as one flat JSON object, numbers not rounded."""
    _write(path, [json.dumps(report, indent=1) + "\n"])


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """One JSON object a line."""
    _write(path, (json.dumps(row) + "\n" for row in rows))


def write_text(path: Path, text: str) -> None:
    """A whole text file. Raises ArgumentError if it can't be written."""
    _write(path, [text])


def _write(path: Path, lines: Iterable[str]) -> None:
    try:
        with open(path, "w", encoding="utf-8") as stream:
            stream.writelines(lines)
    except OSError as error:
        raise ArgumentError(f"{str(path)!r} can't be written: {error.strerror}.") from None


def _number(value: Number) -> str:
    return "-" if value is None else f"{value:,}"


def _rate(value: Number) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _percent(value: Number) -> str:
    return "-" if value is None else f"{100 * value:.1f} % of input tokens"


def _seconds(duration_ms: Number) -> str:
    return "-" if duration_ms is None else f"{duration_ms / 1000:,.3f} s"
