"""`mocker compare A.json B.json`: what changed between two reports of `mocker replay --report`.

Owns which direction of each figure is better, and the table. Must not know how a replay runs.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mocker_core.errors import ArgumentError

# The run's own cost, not a result.
_IGNORED = frozenset({"wall_s"})
_HIGHER_IS_BETTER = frozenset({"completed", "output_tokens_per_s", "requests_per_s", "prefix_reuse_ratio"})
_LOWER_IS_BETTER = frozenset({"rejected", "preemptions", "duration_ms"})


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of both reports. `percent` is None where A has nothing to compare with.

    `verdict`: better, worse, same, or changed where neither direction is better.
    """

    name: str
    a: float | None
    b: float | None
    percent: float | None
    verdict: str


def main(argv: Sequence[str]) -> int:
    """Compare two reports; 1 if a figure is worse by more than --fail-over, else 0."""
    options = _parser().parse_args(argv)
    for flag in ("threshold", "fail_over"):
        value = getattr(options, flag)
        if value is not None and not 0 <= value < math.inf:
            name = flag.replace("_", "-")
            raise ArgumentError(f"--{name} is {value}; it must be a percentage of at least 0.")
    changes = compare(_read(options.a), _read(options.b))
    shown = [change for change in changes if options.all or _exceeds(change, options.threshold)]
    if options.json:
        sys.stdout.write(json.dumps([asdict(change) for change in shown], indent=1) + "\n")
    else:
        sys.stdout.write(render(shown, len(changes), options.a, options.b))
    if options.fail_over is None:
        return 0
    worse = [item for item in changes if item.verdict == "worse" and _exceeds(item, options.fail_over)]
    if worse:
        names = ", ".join(change.name for change in worse)
        print(f"mocker compare: worse by more than {options.fail_over:g} %: {names}", file=sys.stderr)
    return 1 if worse else 0


def compare(a: Mapping[str, float | None], b: Mapping[str, float | None]) -> list[Change]:
    """Every figure that either report has, in the order of A and then of B."""
    names = [name for name in {**a, **b} if name not in _IGNORED]
    return [_change(name, a.get(name), b.get(name)) for name in names]


def render(changes: Sequence[Change], compared: int, a: str, b: str) -> str:
    """The table for a person."""
    if not changes:
        return f"Nothing changed: {compared} figures of {a} and {b} agree.\n"
    width = max(len("figure"), *(len(change.name) for change in changes))
    lines = [f"A = {a}", f"B = {b}", "", f"{'figure':<{width}}{'A':>16}{'B':>16}{'change':>12}"]
    for change in changes:
        cells = f"{_number(change.a):>16}{_number(change.b):>16}{_percent(change):>12}"
        note = change.verdict if change.verdict in ("better", "worse") else ""
        lines.append(f"{change.name:<{width}}{cells}  {note}".rstrip())
    counts = {word: sum(change.verdict == word for change in changes) for word in ("better", "worse")}
    lines += ["", f"{counts['better']} better, {counts['worse']} worse; {compared} figures compared."]
    return "\n".join(lines) + "\n"


def _change(name: str, a: float | None, b: float | None) -> Change:
    percent = None
    if a is not None and b is not None:
        percent = 0.0 if a == b else (None if a == 0 else 100 * (b - a) / abs(a))
    return Change(name, a, b, percent, _verdict(name, a, b))


def _verdict(name: str, a: float | None, b: float | None) -> str:
    # The same run on another machine may differ in the last bits of a sum.
    if a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=1e-9)):
        return "same"
    if a is None or b is None:
        return "changed"
    if name in _HIGHER_IS_BETTER:
        return "better" if b > a else "worse"
    if name in _LOWER_IS_BETTER or name.endswith(("_ttft_ms", "_itl_ms", "_e2e_ms")):
        return "better" if b < a else "worse"
    return "changed"


def _exceeds(change: Change, percent: float) -> bool:
    if change.verdict == "same":
        return False
    return change.percent is None or abs(change.percent) > percent


def _read(path: str) -> dict[str, float | None]:
    try:
        report = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentError(f"the report {path!r} can't be read: {error.strerror}.") from None
    except ValueError as error:
        raise ArgumentError(f"the report {path!r} is not JSON: {error}.") from None
    if not isinstance(report, dict) or "duration_ms" not in report:
        raise ArgumentError(
            f"{path!r} is not a report of a replay; write one with `mocker replay TRACE --report {path}`."
        )
    return {
        name: value
        for name, value in report.items()
        if value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    }


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1 else f"{value:,.2f}"


def _percent(change: Change) -> str:
    """A percentage, or from ten times on the factor, which says more."""
    if change.percent is None:
        return ""
    return f"x {1 + change.percent / 100:,.1f}" if change.percent >= 900 else f"{change.percent:+.2f} %"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mocker compare",
        description="Say what changed from report A to report B; both come from `mocker replay --report`.",
    )
    parser.add_argument("a", metavar="A.json")
    parser.add_argument("b", metavar="B.json")
    parser.add_argument("--all", action="store_true", help="show the figures that did not change too")
    parser.add_argument(
        "--threshold", metavar="PCT", type=float, default=0.0, help="leave out changes up to this percentage"
    )
    parser.add_argument(
        "--fail-over", metavar="PCT", type=float, help="exit with 1 if a figure is worse by more than this"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON array instead of a table")
    return parser
