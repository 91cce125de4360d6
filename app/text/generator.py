"""Plans an answer when its request comes in: token ids (grown lazily), length, finish reason, segments.

Deterministic from (request seed, else server seed and request id; prompt; choice index; position).
Must not know HTTP or the engine, which reads a plan as a sequence of ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.text.lengths import LengthModel
from app.text.tokenizer import Tokenizer

ContentMode = Literal["lorem", "echo", "random"]
SegmentKind = Literal["content", "reasoning", "tool_call", "marker"]
PlanFinish = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens [start, end) of a plan. "marker" tokens count in usage but have no visible text.
    A "tool_call" segment's tokens are the text of its arguments; its name stands in `name`,
    and the call's index among the calls in `index`."""

    kind: SegmentKind
    start: int
    end: int
    name: str = ""
    index: int = 0


@dataclass(frozen=True, slots=True)
class ReasoningOptions:
    """The share of an answer that is reasoning, and the markers around it (ids that count, unseen)."""

    ratio: float = 0.5
    start_token_id: int | None = None
    end_token_id: int | None = None


@dataclass(frozen=True, slots=True)
class ToolCallText:
    """One planned call: the function's name and its arguments as JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a plan depends on. `max_tokens` >= 1 is already cut to what the context leaves."""

    request_id: str
    prompt_token_ids: Sequence[int]
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    seed: int | None = None
    choice_index: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    include_stop_str_in_output: bool = False
    echo_text: str | None = None
    reasoning: ReasoningOptions | None = None


class OutputPlan(Sequence[int]):
    """The token ids of one answer, made as they are read; len() is the planned length (>= 1).

    plain: every token's text stands alone, is visible content and no stop string is to be watched: the hot
    path may splice TokenJson fragments. seed: 64 bits for logprobs. stop_reason: the stop string or
    stop token id that ends it, if one does. finish_reason holds if the whole plan is emitted."""

    finish_reason: PlanFinish
    stop_reason: str | int | None
    segments: tuple[Segment, ...]
    plain: bool
    seed: int


class OutputPlanner:
    """Makes plans with one tokenizer, content mode, server seed and length model. Stateless and shared."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        mode: ContentMode = "lorem",
        server_seed: int = 0,
        lengths: LengthModel | None = None,
    ) -> None: ...

    def plan(self, request: PlanRequest) -> OutputPlan:
        """An answer in the planner's mode."""
        raise NotImplementedError

    def plan_text(self, request: PlanRequest, text: str, *, repeat: bool = False) -> OutputPlan:
        """The given text (dataset, fixture, structured output): "stop" at its end, "length" if cut.
        repeat: begin again, if ignore_eos or min_tokens ask for more tokens than it has."""
        raise NotImplementedError

    def plan_tool_calls(
        self, request: PlanRequest, calls: Sequence[ToolCallText], content: str = ""
    ) -> OutputPlan:
        """Optional content, then the calls: "tool_calls" at the end, "length" if cut."""
        raise NotImplementedError

    def derive_seed(self, request: PlanRequest) -> int:
        """64 bits from seed (or server seed and request id), prompt and choice: for schemas and the like."""
        raise NotImplementedError
