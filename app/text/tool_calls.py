"""Which tools an answer calls, and with which arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.text.generator import ToolCallText


def plan_calls(
    tools: Sequence[Mapping[str, Any]],
    tool_choice: str | Mapping[str, Any] | None,
    seed: int,
    *,
    parallel: bool = True,
    answered: bool = False,
    auto_probability: float = 1.0,
) -> list[ToolCallText]:
    """The calls of one answer; [] means: answer in text.

    tools, tool_choice: as on the wire, already checked (a named function exists). "auto" calls with
    auto_probability, but not once the last message is a tool's result (`answered`), so that agent loops end.
    Raises SchemaError for a parameters schema that is not valid."""
    raise NotImplementedError


def call_id(seed: int, index: int) -> str:
    """A tool call's id, deterministic ("chatcmpl-tool-" and 32 hex digits, as vLLM's)."""
    raise NotImplementedError
