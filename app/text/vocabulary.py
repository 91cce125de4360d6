"""The built-in vocabulary: which id stands for which bytes.

Layout: 0-31 markers, 32-287 single bytes, then pieces (numbers, blanks, punctuation, words,
word parts; from app/text/data), and from 65536 one id for each character of the Basic
Multilingual Plane (65536 + code point). Ids are stable within a release only.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

BYTE_BASE = 32
PIECE_BASE = BYTE_BASE + 256
CHAR_BASE = 0x10000
VOCAB_SIZE = 2 * 0x10000

MARKERS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|tool_call|>",
    "<|tool_args|>",
    "<|think|>",
    "<|end_think|>",
)

_PUNCTUATION = """
" ' ( ) [ ] { } < > - + * / = _ # $ % & @ ! ? , . : ; | \\ ^ ~ `
", ": "," ":" {" "} "] [" ], }, }] [{ [] {} () )) (( ). ), ): ); (" ") ('
') ', ': '] [' == != <= >= => -> <- += -= *= ++ -- ** // && || ... .. :: := ## ### #### ``` `` --- ----
</ /> <!-- --> ${ ?? !! ?" !" ." ." ," }} {{ %} {% \\n \\" 's 't 're 've 'm 'll 'd
"""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """pieces: text of id PIECE_BASE + index. ids: the other way round, with ASCII's single characters."""

    pieces: tuple[str, ...]
    ids: dict[str, int]


def load_vocabulary() -> Vocabulary:
    """Built from the packaged word lists (some tens of thousands of pieces, a few ten milliseconds)."""
    words = read_lines("words.txt")
    parts = read_lines("pieces.txt")
    pieces: dict[str, None] = {}
    for group in (_numbers(), _blanks(), _marks(), _word_forms(words), _part_forms(parts)):
        pieces.update(dict.fromkeys(group))
    kept = tuple(piece for piece in pieces if len(piece) > 1)
    ids = {chr(byte): BYTE_BASE + byte for byte in range(128)}
    ids.update(zip(kept, range(PIECE_BASE, PIECE_BASE + len(kept)), strict=True))
    assert PIECE_BASE + len(kept) <= CHAR_BASE, len(kept)
    return Vocabulary(kept, ids)


def read_lines(name: str) -> list[str]:
    """The lines of a packaged data file."""
    return resources.files("app.text").joinpath("data", name).read_text("utf-8").splitlines()


def _numbers() -> list[str]:
    return [f"{n:0{width}d}" for width in (2, 3) for n in range(10**width)]


def _blanks() -> list[str]:
    runs = [" " * n for n in range(2, 17)] + ["\n" * n for n in range(2, 5)] + ["\t" * n for n in range(2, 9)]
    return [*runs, "\r\n", "\r\n\r\n"]


def _marks() -> list[str]:
    marks = _PUNCTUATION.split()
    return [*marks, *(" " + mark for mark in marks)]


def _word_forms(words: list[str]) -> list[str]:
    titles = [word.capitalize() for word in words]
    forms = [*(" " + word for word in words), *words, *(" " + title for title in titles), *titles]
    return [form for form in forms if form]


def _part_forms(parts: list[str]) -> list[str]:
    pairs = [part for part in parts if len(part) == 2]
    short = [part for part in parts if len(part) <= 3]
    letters = [chr(base + n) for base in (65, 97) for n in range(26)]
    titles = [part.capitalize() for part in short]
    upper = [part.upper() for part in pairs]
    spaced = [" " + part for part in (*letters, *short, *titles, *upper)]
    return [*parts, *titles, *upper, *spaced]
