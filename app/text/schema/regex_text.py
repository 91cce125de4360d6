"""Texts that match a regular expression: a small parser, and a seeded writer for its tree.

Owns the dialect: what ECMA 262 and Python's re share, plus (?<name>..) and a few \\p{..}. Look-arounds,
word boundaries and length limits are met by trying; every text is checked with re before it is given out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from app.text.schema.errors import DeadEndError, SchemaError
from app.text.schema.regex_parse import Alternatives, Back, Chars, Group, Node, Repeat, Sequence, parse

_ATTEMPTS = 200
_FRAGILE_ATTEMPTS, _FRAGILE_CHARS = 50, 18
_SPREADS = (1, 3, 2, 6, 12)
_MAX_CHARS = 20_000


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern ready to be matched and written for."""

    source: str
    compiled: re.Pattern[str]
    tree: Node
    fragile: bool


@lru_cache(maxsize=512)
def compile_pattern(source: str) -> Pattern:
    """Raises SchemaError for what is no regular expression, or is not supported."""
    parsed = parse(source)
    try:
        return Pattern(source, re.compile(parsed.python), parsed.tree, parsed.fragile)
    except (re.error, OverflowError, RecursionError) as error:
        raise SchemaError(f"The pattern {source!r} is not a supported regular expression: {error}.") from None


def write_match(
    source: str, random: Random, *, whole: bool = False, min_chars: int = 0, max_chars: int | None = None
) -> str:
    """A text of min_chars to max_chars that the pattern finds (whole: matches from end to end).

    Raises SchemaError for a pattern that is not usable, DeadEndError if no text was found."""
    pattern = compile_pattern(source)
    test = pattern.compiled.fullmatch if whole else pattern.compiled.search
    written = 0
    if pattern.fragile:
        max_chars = _FRAGILE_CHARS if max_chars is None else min(_FRAGILE_CHARS, max_chars)
    for attempt in range(_FRAGILE_ATTEMPTS if pattern.fragile else _ATTEMPTS):
        if written > 10 * _MAX_CHARS:
            break
        spread = _SPREADS[attempt % len(_SPREADS)]
        if min_chars > 6 and attempt % 2 == 0:
            spread = min(random.randint(1, 2 * min_chars), _MAX_CHARS)
        text = _Writer(random, spread).write(pattern.tree)
        written += len(text)
        if len(text) < min_chars and not whole:
            text = _padded(text, min_chars, random, test)
        if min_chars <= len(text) and (max_chars is None or len(text) <= max_chars) and test(text):
            return text
    raise DeadEndError(f"found no text for the pattern {source!r} with {min_chars} to {max_chars} characters")


def _padded(text: str, min_chars: int, random: Random, test: object) -> str:
    """Text around a match that a pattern without anchors still finds."""
    missing = min_chars - len(text)
    padding = "".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=missing))
    assert callable(test)
    return text + padding if test(text + padding) else padding + text


class _Writer:
    """Walks a tree once. `spread`: how far above its minimum a repeat may go."""

    def __init__(self, random: Random, spread: int) -> None:
        self._random = random
        self._spread = spread
        self._groups: dict[int | str, str] = {}
        self._written = 0

    def write(self, node: Node) -> str:
        random = self._random
        match node:
            case Chars(pool):
                self._written += 1
                return random.choice(pool)
            case Sequence(parts):
                return "".join([self.write(part) for part in parts])
            case Alternatives(choices):
                return self.write(random.choice(choices))
            case Repeat(inner, low, high):
                most = low + self._spread if high is None else min(high, low + self._spread)
                count = random.randint(low, max(low, most))
                if self._written + count > _MAX_CHARS:
                    count = low
                if max(count, self._written) > 10 * _MAX_CHARS:
                    raise SchemaError("A pattern asks for a longer text than can be generated.")
                return "".join([self.write(inner) for _ in range(count)])
            case Group(inner, names):
                text = self.write(inner)
                self._groups.update(dict.fromkeys(names, text))
                return text
            case Back(name):
                return self._groups.get(name, "")
