"""Numbers and strings for flat schemas. Must not know objects, arrays or references."""

from __future__ import annotations

import math
from fractions import Fraction
from random import Random
from typing import Any

from app.text.schema.errors import DeadEndError, SchemaError
from app.text.schema.formats import formatted, named_text, word
from app.text.schema.merge import PATTERNS, Schema
from app.text.schema.regex_text import compile_pattern, write_match

_USUAL_SPAN = 100
_MAX_STRING_CHARS = 200_000


def make_integer(schema: Schema, random: Random, stretch: int = 1) -> int:
    """An integer within the bounds, a multiple if asked for. stretch: go so much further where none bind."""
    step = Fraction(str(schema.get("multipleOf", 1)))
    if step.denominator != 1:
        step = Fraction(
            step.numerator
        )  # the integers among multiples of p/q (in lowest terms) are those of p
    low, high = _bounds(schema)
    first = None if low is None else math.ceil(low[0] / step)
    last = None if high is None else math.floor(high[0] / step)
    if first is not None and low is not None and low[1] and first * step == low[0]:
        first += 1
    if last is not None and high is not None and high[1] and last * step == high[0]:
        last -= 1
    span = max(1, int(_USUAL_SPAN / step)) * stretch
    if first is None:
        first = 0 if last is None or last > 0 else last - span
    if last is None:
        last = first + span
    if first > last:
        raise DeadEndError("no integer lies between the bounds")
    return int(random.randint(first, min(last, first + 10**6)) * step)


def make_number(schema: Schema, random: Random) -> float | int:
    """A number within the bounds, short in writing; a multiple if asked for."""
    if "multipleOf" in schema:
        return _multiple(schema, random)
    low, high = _bounds(schema)
    bottom = low[0] if low is not None else None
    top = high[0] if high is not None else None
    if bottom is None:
        bottom = Fraction(0) if top is None or top > 0 else top - _USUAL_SPAN
    if top is None:
        top = bottom + _USUAL_SPAN
    if bottom == top and not (low and low[1]) and not (high and high[1]):
        return _plain(bottom)
    if bottom >= top:
        raise DeadEndError("no number lies between the bounds")
    point = bottom + (top - bottom) * Fraction(random.randint(1, 999), 1000)
    for places in range(1, 18):
        rounded = Fraction(round(point * 10**places), 10**places)
        if bottom < rounded < top:
            return _plain(rounded)
    return _plain(point)


def make_string(schema: Schema, name: str, random: Random, stretch: int = 1) -> str:
    """A string within the lengths that matches the patterns, else the format, else suits the name.

    stretch above 1: less natural, but seldom the same twice."""
    low, high = int(schema.get("minLength", 0)), schema.get("maxLength")
    most = None if high is None else int(high)
    if most is not None and low > most:
        raise DeadEndError(f"minLength {low} is above maxLength {most}")
    if low > _MAX_STRING_CHARS:
        raise SchemaError(f"minLength is {low}; at most {_MAX_STRING_CHARS} characters can be generated.")
    patterns = schema.get(PATTERNS, [])
    candidate = _by_format(schema, random, low, most, patterns)
    if candidate is not None:
        return candidate
    if patterns:
        return _by_patterns(patterns, random, low, most)
    text = named_text(name, random)
    if stretch > 1 and (most is None or len(text) + 8 <= most):
        text += f" {random.randint(1, 10**6)}"
    while len(text) < low:
        text += " " + word(random)
    if most is not None and len(text) > most:
        text = text[:most]
        if len(text.strip()) >= low:
            text = text.strip()
    return text


def _by_format(schema: Schema, random: Random, low: int, high: int | None, patterns: list[str]) -> str | None:
    name = schema.get("format")
    for _ in range(8 if isinstance(name, str) else 0):
        text = formatted(str(name), random)
        if text is None:
            return None
        fits = low <= len(text) and (high is None or len(text) <= high)
        if fits and all(compile_pattern(pattern).compiled.search(text) for pattern in patterns):
            return text
    return None


def _by_patterns(patterns: list[str], random: Random, low: int, high: int | None) -> str:
    for attempt in range(40 if len(patterns) > 1 else 1):
        # The longest pattern is usually the one that says most; the others are hoped for.
        source = sorted(patterns, key=len, reverse=True)[attempt % len(patterns)]
        text = write_match(source, random, min_chars=low, max_chars=high)
        if all(compile_pattern(pattern).compiled.search(text) for pattern in patterns):
            return text
    raise DeadEndError(f"found no text for all of the patterns {patterns!r}")


Bound = tuple[Fraction, bool]  # the value, and whether it is excluded


def _bounds(schema: Schema) -> tuple[Bound | None, Bound | None]:
    lows = [
        (_exact(schema[key]), key != "minimum") for key in ("minimum", "exclusiveMinimum") if key in schema
    ]
    highs = [
        (_exact(schema[key]), key == "maximum") for key in ("maximum", "exclusiveMaximum") if key in schema
    ]
    low = max(lows, default=None)
    top = min(highs, default=None)
    return low, None if top is None else (top[0], not top[1])


def _exact(value: Any) -> Fraction:
    if isinstance(value, float) and not math.isfinite(value):
        raise SchemaError(f"A bound of the JSON Schema is {value}; it must be a finite number.")
    return Fraction(value)


def _multiple(schema: Schema, random: Random) -> float | int:
    """A multiple that also survives the division in floating point, as validators do it."""
    step = schema["multipleOf"]
    exact = Fraction(str(step))
    low, high = _bounds(schema)
    first = math.ceil(low[0] / exact) if low else None
    last = math.floor(high[0] / exact) if high else None
    if first is None:
        first = 0 if last is None or last >= 0 else last - 50
    if last is None:
        last = first + 50
    for _ in range(60):
        if first > last:
            break
        value = _plain(random.randint(first, min(last, first + 10**6)) * exact)
        quotient = value / step
        inside = (not low or value > low[0] or (value == low[0] and not low[1])) and (
            not high or value < high[0] or (value == high[0] and not high[1])
        )
        if inside and math.isfinite(quotient) and int(quotient) == quotient:
            return value
    raise DeadEndError(f"no multiple of {step} lies between the bounds")


def _plain(value: Fraction) -> float | int:
    if value.denominator == 1:
        return int(value)
    return float(value)
