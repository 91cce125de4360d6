"""Fixtures mode: which request gets which answer, calls, error and delays; sequences, hot reload.

Owns each entry's place in its sequence, and when the file is read. Must not know HTTP: the edge
describes a request, an answer or None comes back.
"""

from __future__ import annotations

from pathlib import Path

from app.content.fixture import (
    FixtureAnswer,
    FixtureDelays,
    FixtureEntry,
    FixtureError,
    FixtureFault,
    FixtureRequest,
)
from app.content.fixture_file import read_fixtures

__all__ = [
    "FixtureAnswer",
    "FixtureDelays",
    "FixtureEntry",
    "FixtureError",
    "FixtureFault",
    "FixtureRequest",
    "FixtureStore",
]

FileStamp = tuple[int, int, int]


class FixtureStore:
    """The entries of one file, each with its place in its sequence. Not for several threads at once."""

    def __init__(self, path: Path, entries: tuple[FixtureEntry, ...], stamp: FileStamp | None) -> None:
        self.path = path
        self.last_error: str | None = None
        self._entries = entries
        self._used = [0] * len(entries)
        self._stamp = stamp

    @classmethod
    def load(cls, path: Path) -> FixtureStore:
        """Raises FixtureError."""
        stamp = file_stamp(path)
        return cls(path, read_fixtures(path), stamp)

    def __len__(self) -> int:
        return len(self._entries)

    def answer_for(self, request: FixtureRequest) -> FixtureAnswer | None:
        """The first matching entry's next answer, or None. At the end of a sequence its last answer
        repeats, or it begins again if the entry says `repeat: cycle`. Call it once per request."""
        for place, entry in enumerate(self._entries):
            if entry.matches(request):
                used = self._used[place]
                self._used[place] = used + 1
                count = len(entry.answers)
                return entry.answers[used % count if entry.cycle else min(used, count - 1)]
        return None

    def reload_if_changed(self) -> bool:
        """True if a changed file was taken over; its sequences begin anew.

        A wrong or missing file keeps the last good version and sets last_error, once per change."""
        stamp = file_stamp(self.path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            entries = read_fixtures(self.path)
        except FixtureError as error:
            self.last_error = str(error)
            return False
        self._entries = entries
        self._used = [0] * len(entries)
        self.last_error = None
        return True


def file_stamp(path: Path) -> FileStamp | None:
    """Changes whenever the file does; None if there is none."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
