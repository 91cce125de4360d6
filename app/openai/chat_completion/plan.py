"""A chat request as an `AnswerSpec`: its tools (or legacy functions), constraint and reasoning.

Owns the meaning of chat's fields for what an answer says; `answer_plan.plan_answer` does the planning.
"""

from __future__ import annotations

from app.errors import bad_request
from app.openai.answer_plan import PLAIN_SPEC, AnswerSpec
from app.openai.chat_completion.protocol import ChatCompletionRequest
from app.openai.reasoning import reasoning_options, template_switch
from app.openai.structured import constraint_of
from app.openai.tool_choice import check_tools, tools_of_functions
from app.state import AppState


def chat_spec(state: AppState, request: ChatCompletionRequest) -> AnswerSpec:
    """What the answers must be like. Raises ApiError 400 with the param that cannot be met."""
    legacy = is_legacy(request)
    if legacy and (request.tools is not None or request.tool_choice is not None):
        raise bad_request("functions and tools are both set; use tools alone.", "functions")
    if legacy:
        tools, tool_choice = tools_of_functions(request.functions, request.function_call)
    else:
        tools, tool_choice = request.tools, request.tool_choice
    check_tools(tools, tool_choice)
    constraint, param = constraint_of(request)
    reasoning = reasoning_options(
        state.settings,
        state.engine.args,
        effort=request.reasoning_effort,
        switch=template_switch(request.chat_template_kwargs),
    )
    if tools is None and constraint is None and reasoning is None:
        return PLAIN_SPEC
    parallel = request.parallel_tool_calls
    return AnswerSpec(
        tools=tools or (),
        tool_choice=tool_choice,
        parallel_tool_calls=not legacy and (parallel is None or parallel),
        answered=request.messages[-1].get("role") in ("tool", "function"),
        constraint=constraint,
        constraint_param=param,
        reasoning=reasoning,
    )


def is_legacy(request: ChatCompletionRequest) -> bool:
    """Whether calls are answered as OpenAI's deprecated function_call."""
    return request.functions is not None or request.function_call is not None


def shows_reasoning(request: ChatCompletionRequest) -> bool:
    """include_reasoning false: its tokens are generated and counted, but not sent."""
    return request.include_reasoning is not False
