"""A text completion as an `AnswerSpec`: only its structured output has a say."""

from __future__ import annotations

from app.openai.answer_plan import PLAIN_SPEC, AnswerSpec
from app.openai.completion.protocol import CompletionRequest
from app.openai.structured import constraint_of


def completion_spec(request: CompletionRequest) -> AnswerSpec:
    """What the answers must be like. Raises ApiError 400 with the param that cannot be met."""
    constraint, param = constraint_of(request)
    if constraint is None:
        return PLAIN_SPEC
    return AnswerSpec(constraint=constraint, constraint_param=param)
