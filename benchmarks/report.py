"""Figures of a run: what was measured, against what, the target, and how they are shown.

Owns the table and the JSON. Must not know how anything is measured.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table. A target is for the ratio ours / reference, or for our own value.

    `wanted` says which: "ratio>=", "ratio<=", "value<=", "value==", or "" for a figure without a target.
    `rounds` keeps what the medians were taken of.
    """

    bench: str
    what: str
    unit: str
    ours: float | None
    reference: float | None = None
    ratio: float | None = None
    wanted: str = ""
    target: float | None = None
    note: str = ""
    rounds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        """Whether the target was reached; None where there is none, or nothing was measured."""
        value = self.ratio if self.wanted.startswith("ratio") else self.ours
        if not self.wanted or value is None or self.target is None:
            return None
        if self.wanted.endswith(">="):
            return value >= self.target
        return value <= self.target if self.wanted.endswith("<=") else value == self.target


def compared(
    bench: str,
    what: str,
    unit: str,
    ours: Sequence[float],
    reference: Sequence[float],
    *,
    wanted: str = "",
    target: float | None = None,
    note: str = "",
) -> Figure:
    """Medians of rounds that were measured in turn; the ratio is the median of the rounds' ratios."""
    ratios = [a / b for a, b in zip(ours, reference, strict=True) if b]
    return Figure(
        bench=bench,
        what=what,
        unit=unit,
        ours=statistics.median(ours) if ours else None,
        reference=statistics.median(reference) if reference else None,
        ratio=statistics.median(ratios) if ratios else None,
        wanted=wanted,
        target=target,
        note=note,
        rounds={"ours": list(ours), "reference": list(reference)},
    )


_HEADINGS = ("what", "ours", "reference", "ratio", "target", "met", "note")


def table(figures: Sequence[Figure]) -> str:
    """A table in Markdown, so that it can go into a document as it is."""
    rows = [_HEADINGS, *(_cells(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _cells(figure: Figure) -> tuple[str, ...]:
    met = {None: "", True: "yes", False: "NO"}[figure.met]
    target = f"{figure.wanted} {_number(figure.target)}" if figure.wanted else ""
    unit = f" {figure.unit}" if figure.unit else ""
    ours, reference = (
        _number(value) + unit if value is not None else "" for value in (figure.ours, figure.reference)
    )
    return (
        f"{figure.bench}: {figure.what}",
        ours,
        reference,
        _number(figure.ratio),
        target,
        met,
        figure.note,
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def machine() -> dict[str, Any]:
    """What a reader needs to judge the figures by."""
    model = platform.processor() or "unknown"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    packages = ("uvicorn", "uvloop", "httptools", "fastapi", "starlette", "orjson")
    return {
        "cpu": model,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "load_average": list(os.getloadavg()),
        "packages": {name: metadata.version(name) for name in packages},
    }


def write_json(path: Path, figures: Sequence[Figure], options: dict[str, Any]) -> None:
    """All figures with their rounds, the machine and the date."""
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "options": options,
        "figures": [{**asdict(figure), "met": figure.met} for figure in figures],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
