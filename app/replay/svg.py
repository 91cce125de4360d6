"""Plain charts as inline SVG: distributions, stacked areas over time, points, and spans of requests.

Owns geometry and number formats; colours are CSS classes of the page. Must not know what the numbers mean.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, WIDE, HEIGHT = 720, 1462, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 14, 30
_BINS = 48


@dataclass(frozen=True, slots=True)
class Scale:
    """Values `low`..`high` onto pixels `start`..`end`; logarithmic if asked for (then low > 0)."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def value(self, share: float) -> float:
        """The value at a share (0..1) of the way."""
        if self.log:
            return float(self.low * (self.high / self.low) ** share)
        return self.low + share * (self.high - self.low)

    def ticks(self, about: int = 5) -> list[float]:
        """Round values inside the range."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            marks = [10.0**power for power in range(first, last + 1)]
            if len(marks) < 3:
                wide = [10.0**power * unit for power in range(first - 1, last + 1) for unit in (1, 2, 5)]
                marks = [mark for mark in wide if self.low <= mark <= self.high]
            return marks
        step = _round_step((self.high - self.low) / about)
        first_step = math.ceil(self.low / step - 1e-9)
        count = math.floor(self.high / step + 1e-9) - first_step + 1
        return [(first_step + index) * step for index in range(count)]


@dataclass(frozen=True, slots=True)
class Area:
    """One layer of a stacked chart: a CSS class and one value per point."""

    css: str
    label: str
    values: Sequence[float]


@dataclass(frozen=True, slots=True)
class Span:
    """A horizontal bar from `start` to `end`."""

    css: str
    start: float
    end: float


def distribution(
    samples: Sequence[tuple[float, int]], marks: Sequence[tuple[str, float]], unit: str, label: str
) -> str:
    """A histogram of (value, weight) with the cumulative share as a line and named values as marks."""
    total = sum(weight for _, weight in samples)
    if not total:
        return empty("No samples")
    scale = _value_scale([value for value, _ in samples])
    counts = [0] * _BINS
    for value, weight in samples:
        share = (scale(value) - scale.start) / (scale.end - scale.start)
        counts[min(_BINS - 1, max(0, int(share * _BINS)))] += weight
    rise = Scale(0, max(counts), HEIGHT - _BOTTOM, _TOP)
    width = (scale.end - scale.start) / _BINS
    parts = [_x_axis(scale, lambda value: duration(value, unit)), _y_axis(rise, short)]
    seen = 0
    line = [f"{_LEFT},{HEIGHT - _BOTTOM}"]
    for index, count in enumerate(counts):
        x = scale.start + index * width
        seen += count
        line.append(f"{x + width:.1f},{_TOP + (1 - seen / total) * (HEIGHT - _TOP - _BOTTOM):.1f}")
        if count:
            low, high = scale.value(index / _BINS), scale.value((index + 1) / _BINS)
            tip = (
                f"{duration(low, unit)} to {duration(high, unit)}: {count:,} ({seen / total:.1%} up to here)"
            )
            parts.append(_rect("bar", x + 0.5, rise(count), width - 1, rise(0) - rise(count), tip))
    parts.append(f'<polyline class="cdf" points="{" ".join(line)}"/>')
    parts += _marks(scale, marks, unit)
    return _svg(parts, label)


def stacked(
    xs: Sequence[float],
    end: float,
    layers: Sequence[Area],
    label: str,
    *,
    ceiling: float | None = None,
    width: int = WIDTH,
) -> str:
    """Layers over time as steps, the first one lowest; `ceiling` draws a limit."""
    if not xs:
        return empty("No passes")
    tops = [sum(column) for column in zip(*(layer.values for layer in layers), strict=True)]
    across = Scale(0, max(end, 1e-9), _LEFT, width - _RIGHT)
    rise = Scale(0, max([*tops, ceiling or 0, 1e-9]) * 1.05, HEIGHT - _BOTTOM, _TOP)
    parts = [_x_axis(across, seconds), _y_axis(rise, short, width)]
    below = [0.0] * len(xs)
    edges = [*xs[1:], end]
    for layer in layers:
        above = [low + value for low, value in zip(below, layer.values, strict=True)]
        forth = _steps(xs, edges, above, across, rise)
        back = reversed(_steps(xs, edges, below, across, rise))
        parts.append(f'<polygon class="{layer.css}" points="{" ".join([*forth, *back])}"/>')
        below = above
    if ceiling is not None:
        y = rise(ceiling)
        parts.append(f'<line class="limit" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    for index, x in enumerate(xs):
        told = ", ".join(f"{layer.label} {short(layer.values[index])}" for layer in layers)
        parts.append(
            _rect(
                "hover",
                across(x),
                _TOP,
                across(edges[index]) - across(x),
                HEIGHT - _TOP - _BOTTOM,
                f"{seconds(x)}: {told}",
            )
        )
    return _svg(parts, label, width=width)


def points(found: Sequence[tuple[float, float, str]], end: float, label: str) -> str:
    """Dots at (time, value, CSS class); values in ms."""
    if not found:
        return empty("No samples")
    across = Scale(0, max(end, 1e-9), _LEFT, WIDTH - _RIGHT)
    rise = Scale(0, max(max(value for _, value, _ in found), 1e-9) * 1.05, HEIGHT - _BOTTOM, _TOP)
    parts = [_x_axis(across, seconds), _y_axis(rise, lambda value: duration(value, "ms"))]
    parts += [
        f'<circle class="{css}" cx="{across(x):.1f}" cy="{rise(value):.1f}" r="2"/>'
        for x, value, css in found
    ]
    return _svg(parts, label)


def spans(rows: Sequence[tuple[str, Sequence[Span]]], end: float, label: str) -> str:
    """One line per row (tip, spans), the first one on top."""
    if not rows:
        return empty("No requests")
    height = max(3.0, min(10.0, 560 / len(rows)))
    bottom = _TOP + height * len(rows)
    across = Scale(0, max(end, 1e-9), _LEFT, WIDE - _RIGHT)
    parts = [_x_axis(across, seconds, bottom)]
    for index, (tip, row) in enumerate(rows):
        y = _TOP + index * height
        bars = "".join(
            _rect(
                span.css,
                across(span.start),
                y + 0.4,
                max(across(span.end) - across(span.start), 0.4),
                height - 0.8,
            )
            for span in row
        )
        parts.append(f"<g>{bars}<title>{escape(tip)}</title></g>")
    return _svg(parts, label, bottom + _BOTTOM, WIDE)


def empty(text: str) -> str:
    """What stands where there is nothing to draw."""
    return f'<p class="empty">{escape(text)}.</p>'


def duration(value: float, unit: str) -> str:
    """A time in ms as a person writes it; another unit's value as it is."""
    if unit != "ms" or not value:
        return f"{short(value)} {unit}".rstrip()
    if value >= 1000:
        return f"{value / 1000:.3g} s" if value < 1e6 else f"{value / 1000:,.0f} s"
    return f"{value:.3g} ms"


def seconds(value_ms: float) -> str:
    return f"{value_ms / 1000:g} s" if value_ms < 1e4 else f"{value_ms / 1000:,.6g} s"


def short(value: float) -> str:
    """A count in few characters."""
    for limit, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if suffix == 'k' else limit):.3g}{suffix}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


def _value_scale(values: Sequence[float]) -> Scale:
    low, high = min(values), max(values)
    if high <= low:
        low, high = low * 0.9, low * 1.1 or 1.0
    # A long tail would press everything else into the first bar.
    log = low > 0 and high / low > 60
    return Scale(low if log else max(0.0, low), high, _LEFT, WIDTH - _RIGHT, log)


def _marks(scale: Scale, marks: Sequence[tuple[str, float]], unit: str) -> list[str]:
    parts: list[str] = []
    taken = -1000.0
    # From the right: where names would lie over each other the highest one stays.
    for name, value in reversed(marks):
        x = scale(min(max(value, scale.low), scale.high))
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        anchor = "end" if x > WIDTH - 60 else "start"
        if abs(x - taken) > 64:
            shift = -4 if anchor == "end" else 4
            parts.append(
                f'<text class="marked" x="{x + shift:.1f}" y="{_TOP + 9}" text-anchor="{anchor}">'
                f"{escape(name)}<title>{escape(name)}: {escape(duration(value, unit))}</title></text>"
            )
            taken = x
    return parts


def _steps(
    xs: Sequence[float], edges: Sequence[float], ys: Sequence[float], across: Scale, rise: Scale
) -> list[str]:
    return [
        f"{across(at):.1f},{rise(y):.1f}"
        for x, edge, y in zip(xs, edges, ys, strict=True)
        for at in (x, edge)
    ]


def _x_axis(scale: Scale, show: Callable[[float], str], bottom: float = HEIGHT - _BOTTOM) -> str:
    parts = [f'<line class="axis" x1="{scale.start}" x2="{scale.end}" y1="{bottom:.1f}" y2="{bottom:.1f}"/>']
    for tick in scale.ticks(7):
        x = scale(tick)
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{show(tick)}</text>'
        )
    return "".join(parts)


def _y_axis(scale: Scale, show: Callable[[float], str], width: int = WIDTH) -> str:
    parts = []
    for tick in scale.ticks(4):
        y = scale(tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{_LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{show(tick)}</text>'
        )
    return "".join(parts)


def _rect(css: str, x: float, y: float, width: float, height: float, tip: str = "") -> str:
    title = f"<title>{escape(tip)}</title>" if tip else ""
    return (
        f'<rect class="{css}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.1):.1f}" '
        f'height="{max(height, 0):.1f}">{title}</rect>'
    )


def _round_step(rough: float) -> float:
    power = 10.0 ** math.floor(math.log10(rough))
    return next(unit * power for unit in (1, 2, 5, 10) if unit * power >= rough * (1 - 1e-9))


def _svg(parts: Sequence[str], label: str, height: float = HEIGHT, width: int = WIDTH) -> str:
    return (
        f'<svg viewBox="0 0 {width} {height:.0f}" role="img" aria-label="{escape(label, quote=True)}">'
        f"{''.join(parts)}</svg>"
    )
