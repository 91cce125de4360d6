"""What a fixture is: an answer, and what a request must be like to get it.

Owns these values and the matching. Must not know files or HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.text.plan import ToolCallText


class FixtureError(ValueError):
    """The file is wrong; the message names the file and the line."""


@dataclass(frozen=True, slots=True)
class FixtureRequest:
    """What an entry can match on. tool_result: text of the last message if that is a tool's result, else
    None. headers: lower-case names."""

    model: str
    last_user_message: str
    tool_result: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


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
    """Added to the engine's own times, in milliseconds: to the first token, and to each gap after it."""

    ttft_ms: float = 0.0
    itl_ms: float = 0.0


NO_DELAYS = FixtureDelays()


@dataclass(frozen=True, slots=True)
class FixtureAnswer:
    """text, reasoning and tool_calls as they are to be sent, or an error instead; delays go with each."""

    text: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCallText, ...] = ()
    error: FixtureFault | None = None
    delays: FixtureDelays = NO_DELAYS
    finish_reason: str | None = None


@dataclass(frozen=True, slots=True)
class TextMatch:
    """All that is set must hold for the text."""

    exact: str | None = None
    contains: str | None = None
    regex: re.Pattern[str] | None = None

    def holds(self, text: str) -> bool:
        if self.exact is not None and text != self.exact:
            return False
        if self.contains is not None and self.contains not in text:
            return False
        return self.regex is None or self.regex.search(text) is not None


@dataclass(frozen=True, slots=True)
class FixtureEntry:
    """One entry: what must hold (None: anything), and the answers in turn.

    An entry that says nothing of tool_result never answers a tool's result: else the entry that made
    the call would answer its own result for ever."""

    answers: tuple[FixtureAnswer, ...]
    cycle: bool = False
    model: TextMatch | None = None
    user: TextMatch | None = None
    tool_result: TextMatch | None = None
    headers: tuple[tuple[str, TextMatch], ...] = ()
    name: str = ""

    def matches(self, request: FixtureRequest) -> bool:
        if (self.tool_result is None) != (request.tool_result is None):
            return False
        if self.tool_result is not None and not self.tool_result.holds(request.tool_result or ""):
            return False
        if self.model is not None and not self.model.holds(request.model):
            return False
        if self.user is not None and not self.user.holds(request.last_user_message):
            return False
        return all(
            name in request.headers and match.holds(request.headers[name]) for name, match in self.headers
        )
