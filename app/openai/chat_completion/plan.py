"""What a chat choice says: the one place that chooses a plan from the request's features.

Tools, structured output and canned content plug in here; streaming and whole answers read whatever plan
comes out by its segments.
"""

from __future__ import annotations

from app.openai.chat_completion.protocol import ChatCompletionRequest
from app.state import AppState
from app.text.plan import OutputPlan, PlanRequest


def plan_chat_choice(state: AppState, request: ChatCompletionRequest, plan: PlanRequest) -> OutputPlan:
    """The planned answer of one choice. Raises ApiError 400 for a feature that cannot be met."""
    return state.planner.plan(plan)
