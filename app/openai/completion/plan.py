"""What a completion's choice says; structured output and canned content plug in here, as for chat."""

from __future__ import annotations

from app.openai.completion.protocol import CompletionRequest
from app.state import AppState
from app.text.plan import OutputPlan, PlanRequest


def plan_completion_choice(state: AppState, request: CompletionRequest, plan: PlanRequest) -> OutputPlan:
    """The planned answer of one choice. Raises ApiError 400 for a feature that cannot be met."""
    return state.planner.plan(plan)
