"""`mocker replay --html`: one self-contained page about a replay, with its charts as inline SVG.

Owns which charts there are and what they show. The drawing is `svg`'s, the page's frame is a template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from string import Template

from app import __version__
from app.replay.output import Number, write_text
from app.replay.svg import WIDE, Area, Span, distribution, duration, points, short, spans, stacked
from app.replay.timeline import LoadPoint, PoolLoad
from mocker_core.engine.replay_report import QUANTILES, ReplayRow

_ROWS_DRAWN = 180
_POINTS_DRAWN = 4000
_REUSE_BINS = 96
_PREEMPTION_BINS = 120


def write_report(
    path: Path,
    title: str,
    report: Mapping[str, Number],
    rows: Sequence[ReplayRow],
    gaps: Sequence[tuple[float, int]],
    pools: Sequence[PoolLoad],
) -> None:
    """Write the page. Raises ArgumentError if the file can't be written."""
    write_text(path, build_report(title, report, rows, gaps, pools))


def build_report(
    title: str,
    report: Mapping[str, Number],
    rows: Sequence[ReplayRow],
    gaps: Sequence[tuple[float, int]],
    pools: Sequence[PoolLoad],
) -> str:
    """The page as HTML. `gaps` are inter-token gaps as (ms, how many)."""
    completed = [row for row in rows if row.status == "completed"]
    end_ms = report["duration_ms"] or 0.0
    body = [
        _section("Summary", _summary(report), _latency_table(report)),
        _section("Latency", *_latencies(report, completed, gaps)),
        *(_load(pool, len(pools)) for pool in pools),
        _section("Prefix reuse", *_reuse(completed)),
        _section("Requests", *_requests(rows, end_ms)),
    ]
    template = Template(files("app.replay").joinpath("report.html").read_text(encoding="utf-8"))
    return template.substitute(title=escape(title), version=__version__, body="\n".join(body))


def _section(title: str, *parts: str) -> str:
    return f'<section><h2>{escape(title)}</h2><div class="grid2">{"".join(parts)}</div></section>'


def _figure(title: str, chart: str, note: str = "", wide: bool = False) -> str:
    caption = f"<b>{escape(title)}</b> <span>{note}</span>"
    return f"<figure{' class=wide' if wide else ''}><figcaption>{caption}</figcaption>{chart}</figure>"


def _legend(*items: tuple[str, str]) -> str:
    return " ".join(f'<i class="key {css}"></i>{escape(label)}' for css, label in items)


def _summary(report: Mapping[str, Number]) -> str:
    reuse = report["prefix_reuse_ratio"]
    tiles = [
        ("completed", short(report["completed"] or 0), f"{report['rejected']} rejected"),
        (
            "simulated time",
            duration(report["duration_ms"] or 0, "ms"),
            f"replayed in {report['wall_s']:.2f} s",
        ),
        ("output tokens", short(report["output_tokens"] or 0), f"{short(report['input_tokens'] or 0)} input"),
        (
            "output tokens/s",
            _rate(report["output_tokens_per_s"]),
            f"{_rate(report['requests_per_s'])} requests/s",
        ),
        ("prefix reuse", "–" if reuse is None else f"{100 * reuse:.1f} %", "of input tokens"),
        ("preemptions", short(report["preemptions"] or 0), "in all requests"),
    ]
    cells = "".join(
        f'<div class="tile"><span>{name}</span><b>{value}</b><small>{note}</small></div>'
        for name, value, note in tiles
    )
    return f'<div class="tiles wide">{cells}</div>'


def _latency_table(report: Mapping[str, Number]) -> str:
    names = ("mean", *(label for label, _ in QUANTILES))
    head = "".join(f"<th scope=col>{name}</th>" for name in names)
    body = ""
    for metric in ("ttft", "itl", "e2e"):
        values = (report[f"{name}_{metric}_ms"] for name in names)
        cells = "".join("<td>–</td>" if value is None else f"<td>{value:,.2f}</td>" for value in values)
        body += f"<tr><th scope=row>{metric.upper()}</th>{cells}</tr>"
    return (
        f"<div class=wide><table><thead><tr><th>ms</th>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _latencies(
    report: Mapping[str, Number], completed: Sequence[ReplayRow], gaps: Sequence[tuple[float, int]]
) -> list[str]:
    samples = {
        "ttft": [(row.ttft_ms, 1) for row in completed if row.ttft_ms is not None],
        "itl": list(gaps),
        "e2e": [(row.e2e_ms, 1) for row in completed if row.e2e_ms is not None],
    }
    titles = {"ttft": "Time to first token", "itl": "Inter-token latency", "e2e": "End to end"}
    figures = []
    for metric, title in titles.items():
        marks = [
            (name, value)
            for name, value in ((name, report[f"{name}_{metric}_ms"]) for name in ("p50", "p90", "p99"))
            if value is not None
        ]
        told = ", ".join(f"{name} {duration(value, 'ms')}" for name, value in marks)
        chart = distribution(samples[metric], marks, "ms", f"{title}: {told}")
        figures.append(_figure(title, chart, told))
    found = [
        (row.arrival_ms, row.ttft_ms, "dot-bad" if row.preemptions else "dot")
        for row in _thinned(completed, _POINTS_DRAWN)
        if row.arrival_ms is not None and row.ttft_ms is not None
    ]
    legend = _legend(("dot", "a request"), ("dot-bad", "preempted"))
    figures.append(
        _figure("TTFT by arrival", points(found, _last_arrival_ms(completed), "TTFT by arrival time"), legend)
    )
    return figures


def _load(pool: PoolLoad, pools: int) -> str:
    found = pool.points()
    xs = [point.start_ms for point in found]
    batch = [
        Area("running", "running", [point.running for point in found]),
        Area("waiting", "waiting", [point.waiting for point in found]),
    ]
    blocks = [
        Area("active", "active", [point.active_blocks for point in found]),
        Area("cached", "cached", [point.cached_blocks for point in found]),
    ]
    figures = [
        _figure(
            "Batch and queue",
            stacked(xs, pool.end_ms, batch, "Running and waiting requests over time"),
            _legend(("running", "running"), ("waiting", "waiting")),
        ),
        _figure(
            "KV blocks",
            stacked(xs, pool.end_ms, blocks, "KV blocks over time", ceiling=pool.total_blocks),
            _legend(("active", "active"), ("cached", f"cached, of {pool.total_blocks:,}")),
        ),
    ]
    if sum(point.preemptions for point in found):
        figures.append(_preemptions(pool, found))
    return _section("Load" if pools == 1 else f"Load of the {pool.name} workers", *figures)


def _preemptions(pool: PoolLoad, found: Sequence[LoadPoint]) -> str:
    joined = max(1, len(found) // _PREEMPTION_BINS)
    counts = [
        float(sum(point.preemptions for point in found[at : at + joined]))
        for at in range(0, len(found), joined)
    ]
    xs = [point.start_ms for point in found[::joined]]
    layers = [Area("preempted", "preempted", counts)]
    chart = stacked(xs, pool.end_ms, layers, "Preemptions over time", width=WIDE)
    note = f"{sum(counts):,.0f} in all, by {duration(pool.bin_ms * joined, 'ms')}"
    return _figure("Preemptions", chart, note, wide=True)


def _reuse(completed: Sequence[ReplayRow]) -> list[str]:
    end_ms = _last_arrival_ms(completed)
    width_ms = end_ms / _REUSE_BINS
    reused, computed = [0.0] * _REUSE_BINS, [0.0] * _REUSE_BINS
    for row in completed:
        at = min(_REUSE_BINS - 1, int((row.arrival_ms or 0.0) / width_ms))
        hit = row.reused_input_tokens or 0
        reused[at] += hit
        computed[at] += row.input_length - hit
    layers = [Area("cached", "from the cache", reused), Area("prefill", "computed", computed)]
    xs = [index * width_ms for index in range(_REUSE_BINS)]
    legend = _legend(("cached", "from the cache"), ("prefill", "computed"))
    chart = stacked(xs, end_ms, layers, "Input tokens by arrival time: reused and computed")
    shares = [
        (100 * (row.reused_input_tokens or 0) / row.input_length, 1) for row in completed if row.input_length
    ]
    return [
        _figure("Input tokens by arrival", chart, legend),
        _figure("Reused share of a request's input", distribution(shares, [], "%", "Reused share")),
    ]


def _requests(rows: Sequence[ReplayRow], end_ms: float) -> list[str]:
    shown = _thinned([row for row in rows if row.arrival_ms is not None], _ROWS_DRAWN)
    longest_ms = max((row.e2e_ms or 0.0 for row in shown), default=0.0)
    # In a long replay a request would be a dot on the replay's own time.
    since_arrival = 0 < longest_ms < end_ms / 20
    if since_arrival:
        ordered = sorted(shown, key=lambda row: -(row.e2e_ms or 0.0))
        drawn = [(_tip(row), _spans(row, row.arrival_ms or 0.0)) for row in ordered]
        end_ms = longest_ms
    else:
        drawn = [(_tip(row), _spans(row)) for row in sorted(shown, key=lambda row: row.arrival_ms or 0.0)]
    names = [("waiting", "queued"), ("prefill", "to the first token"), ("decode", "decode")]
    if any(row.destination_activated_ms is not None for row in shown):
        names.insert(2, ("transfer", "handoff"))
    note = _legend(*names) + (f" – {len(shown)} of {len(rows):,} requests" if len(shown) < len(rows) else "")
    title = "Each request since its arrival" if since_arrival else "Each request's way"
    return [_figure(title, spans(drawn, end_ms, "Requests over time"), note, wide=True)]


def _spans(row: ReplayRow, zero_ms: float = 0.0) -> list[Span]:
    """Queue, prefill, handoff and decode, as far as the request came."""
    marks = [
        ("waiting", row.arrival_ms),
        ("prefill", row.first_admit_ms if row.prefill_admit_ms is None else row.prefill_admit_ms),
        ("transfer", row.source_held_ms),
        ("prefill", row.decode_admit_ms if row.source_held_ms is not None else None),
        ("decode", row.first_token_ms),
        ("end", row.last_token_ms),
    ]
    reached = [(css, at_ms) for css, at_ms in marks if at_ms is not None]
    return [
        Span(css, start_ms - zero_ms, max(start_ms, end_ms) - zero_ms)
        for (css, start_ms), (_, end_ms) in pairwise(reached)
    ]


def _tip(row: ReplayRow) -> str:
    parts = [f"row {row.trace_index}: {row.input_length:,} in, {row.output_length:,} out"]
    if row.status != "completed":
        parts.append(str(row.status))
    for name, value in (("TTFT", row.ttft_ms), ("ITL", row.mean_itl_ms), ("e2e", row.e2e_ms)):
        if value is not None:
            parts.append(f"{name} {duration(value, 'ms')}")
    if row.reused_input_tokens:
        parts.append(f"{row.reused_input_tokens:,} tokens reused")
    if row.preemptions:
        parts.append(f"preempted {row.preemptions} times")
    return ", ".join(parts)


def _last_arrival_ms(rows: Sequence[ReplayRow]) -> float:
    """Where charts by arrival end; never 0."""
    return max((row.arrival_ms or 0.0 for row in rows), default=0.0) or 1.0


def _thinned(rows: Sequence[ReplayRow], most: int) -> Sequence[ReplayRow]:
    """At most `most` of them, evenly spread."""
    return rows if len(rows) <= most else [rows[index * len(rows) // most] for index in range(most)]


def _rate(value: Number) -> str:
    return "–" if value is None else f"{value:,.1f}"
