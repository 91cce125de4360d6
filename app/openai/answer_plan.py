"""What one choice says: the only place where tools, structured output, reasoning and canned text meet a plan.

Every generating route (chat, completions, responses, messages) describes its request as an `AnswerSpec` and
calls `plan_answer`. Must not know wire shapes of requests or answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.errors import bad_request
from app.text.generator import OutputPlanner
from app.text.guided import structured_text
from app.text.json_schema import SchemaError
from app.text.plan import FinishWord, OutputPlan, PlanRequest, ReasoningOptions, ToolCallText
from app.text.tool_calls import plan_calls


@dataclass(frozen=True, slots=True)
class CannedAnswer:
    """An answer that was written before (dataset, fixtures). `decides`: it goes before tools and constraints.

    `repeat`: begin again if ignore_eos or min_tokens ask for more than it has. `delays_ms`: added to the
    engine's time of the first token, and to each gap after it."""

    text: str = ""
    reasoning: str | None = None
    tool_calls: tuple[ToolCallText, ...] = ()
    finish_reason: FinishWord | None = None
    decides: bool = False
    repeat: bool = False
    delays_ms: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSpec:
    """What the answers to one request must be like, whichever API asked.

    tools, tool_choice: as on the wire (Chat's shape or that of Responses), checked by
    `tool_choice.check_tools`.
    answered: the last message is a tool's result. constraint: vLLM's `structured_outputs` object, that is
    {"json": schema}, {"regex": ..}, {"choice": [..]} or {"json_object": true};
    constraint_param names it in errors.
    """

    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str | Mapping[str, Any] | None = None
    parallel_tool_calls: bool = True
    answered: bool = False
    constraint: Mapping[str, Any] | None = None
    constraint_param: str = "structured_outputs"
    reasoning: ReasoningOptions | None = None
    canned: CannedAnswer | None = None

    @property
    def call_is_forced(self) -> bool:
        """Whether an answer without a call would be wrong."""
        choice = self.tool_choice
        if isinstance(choice, Mapping):
            allowed = choice.get("allowed_tools", choice)
            return choice.get("type") != "allowed_tools" or allowed.get("mode") == "required"
        return choice == "required"


PLAIN_SPEC = AnswerSpec()


def with_canned(spec: AnswerSpec, canned: CannedAnswer | None) -> AnswerSpec:
    """The same wishes with a canned answer, if there is one."""
    return spec if canned is None else replace(spec, canned=canned)


def plan_answer(planner: OutputPlanner, request: PlanRequest, spec: AnswerSpec = PLAIN_SPEC) -> OutputPlan:
    """The planned answer of one choice. Raises ApiError 400 for a schema or pattern that cannot be met.

    First of these that applies: a canned answer that decides, tool calls, a canned text, structured output,
    the server's content mode.
    """
    if spec is PLAIN_SPEC:
        return planner.plan(request)
    if spec.reasoning is not None:
        request = replace(request, reasoning=spec.reasoning)
    canned = spec.canned
    if canned is not None and (canned.decides or not spec.call_is_forced):
        return _plan_canned(planner, request, canned)
    if spec.tools:
        calls = _calls(planner, request, spec)
        if calls:
            return planner.plan_tool_calls(request, calls)
    if spec.constraint is not None:
        try:
            text = structured_text(spec.constraint, planner.derive_seed(request))
        except SchemaError as error:
            raise bad_request(str(error), spec.constraint_param) from None
        return planner.plan_text(request, text)
    return planner.plan(request)


def _calls(planner: OutputPlanner, request: PlanRequest, spec: AnswerSpec) -> list[ToolCallText]:
    try:
        return plan_calls(
            spec.tools,
            spec.tool_choice,
            planner.derive_seed(request),
            parallel=spec.parallel_tool_calls,
            answered=spec.answered,
        )
    except SchemaError as error:
        raise bad_request(str(error), "tools") from None


def _plan_canned(planner: OutputPlanner, request: PlanRequest, canned: CannedAnswer) -> OutputPlan:
    if canned.tool_calls:
        plan = planner.plan_tool_calls(
            request, canned.tool_calls, canned.text, reasoning_text=canned.reasoning
        )
    else:
        plan = planner.plan_text(request, canned.text, repeat=canned.repeat, reasoning_text=canned.reasoning)
    plan.delays_ms = canned.delays_ms
    if canned.finish_reason is not None and plan.finish_reason in ("stop", "tool_calls"):
        plan.finish_reason = canned.finish_reason
    return plan
