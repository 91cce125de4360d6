"""Fixtures mode: a YAML file says which requests get which answers, calls, errors and delays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from app.text.generator import ToolCallText


class FixtureError(ValueError):
    """The file is wrong; the message names the file and the line or entry."""


@dataclass(frozen=True, slots=True)
class FixtureRequest:
    """What an entry can match on. headers: lower-case names."""

    model: str
    last_user_message: str
    tool_result: str | None
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FixtureFault:
    """An error answer: HTTP status and the fields of the error body."""

    status: int
    message: str
    type: str = "server_error"
    code: str | None = None
    param: str | None = None


@dataclass(frozen=True, slots=True)
class FixtureDelays:
    """Added to the engine's own times; milliseconds."""

    ttft_ms: float = 0.0
    itl_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class FixtureAnswer:
    """One of: text, tool_calls (with optional text before), error. delays apply to each."""

    text: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCallText, ...] = ()
    error: FixtureFault | None = None
    delays: FixtureDelays = FixtureDelays()
    finish_reason: str | None = None


class FixtureStore:
    """The entries of one file, each with its place in its sequence of answers."""

    last_error: str | None

    @classmethod
    def load(cls, path: Path) -> FixtureStore:
        """Raises FixtureError."""
        raise NotImplementedError

    def answer_for(self, request: FixtureRequest) -> FixtureAnswer | None:
        """The first matching entry's next answer (the last one of a sequence repeats), or None."""
        raise NotImplementedError

    def reload_if_changed(self) -> bool:
        """True if a changed file was taken over. A wrong file keeps the last good version and sets last_error."""
        raise NotImplementedError
