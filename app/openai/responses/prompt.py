"""From a request's fields to what the engine and the planner need: context, prompt tokens, answer spec.

Shared by creating a response and by counting its input tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.errors import ApiError, bad_request
from app.openai.answer_plan import PLAIN_SPEC, AnswerSpec
from app.openai.reasoning import reasoning_options
from app.openai.responses.input_items import Item, chat_messages, input_items
from app.openai.responses.protocol import InputFields
from app.openai.responses.store import ResponseStore
from app.openai.serving import tokenised
from app.openai.structured import constraint_of, format_constraint
from app.openai.tool_choice import check_tools
from app.state import AppState
from app.text.chat_template import ChatTemplateError

# What OpenAI runs by itself: accepted, shown in the answer, never called.
_HOSTED_TOOLS = (
    "apply_patch",
    "code_interpreter",
    "computer",
    "computer_use_preview",
    "custom",
    "file_search",
    "image_generation",
    "local_shell",
    "mcp",
    "namespace",
    "programmatic_tool_calling",
    "shell",
    "tool_search",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
)


def context_of(store: ResponseStore, request: InputFields, answer_id: str) -> list[Item]:
    """All items of the prompt, the earlier turns' first. Raises ApiError 400 or 404."""
    if request.conversation is not None:
        if request.previous_response_id is not None:
            raise bad_request(
                "conversation and previous_response_id are both set; use one of them.", "conversation"
            )
        raise bad_request(
            "conversation is set, but this server keeps no conversation objects; use previous_response_id.",
            "conversation",
        )
    own = input_items(request.input, answer_id, store.item_finder())
    if request.previous_response_id is None:
        return own
    return [*store.context(request.previous_response_id), *own]


def messages_of(request: InputFields, context: Sequence[Item]) -> list[dict[str, Any]]:
    return chat_messages(context, request.instructions)


async def prompt_tokens(
    state: AppState, request: InputFields, messages: Sequence[Mapping[str, Any]], text_chars: int
) -> list[int]:
    """Raises ApiError 400 for content that cannot be rendered."""
    # OpenAI's built-in tools have no text here; a function's definition stands in the prompt.
    tools = [tool for tool in request.tools or () if tool.get("type") == "function"]
    try:
        return await tokenised(lambda: state.template.encode(messages, tools=tools or None), text_chars)
    except ChatTemplateError as exc:
        raise bad_request(str(exc).replace("messages.", "input.", 1), "input") from None


def answer_spec(state: AppState, request: InputFields, context: Sequence[Item]) -> AnswerSpec:
    """What the answer must be like. Raises ApiError 400 with the param that cannot be met."""
    tools = request.tools or None
    choice = request.tool_choice
    has_function = any(tool.get("type") == "function" for tool in tools or ())
    hosted_only = tools is not None and not has_function
    if (isinstance(choice, dict) and choice.get("type") in _HOSTED_TOOLS) or (
        hosted_only and choice == "required"
    ):
        choice = "auto"
    if tools is None and choice == "auto":
        choice = None
    check_tools(tools, choice, kinds=("function", *_HOSTED_TOOLS))
    reasoning = reasoning_options(
        state.settings,
        state.engine.args,
        effort=None if request.reasoning is None else request.reasoning.effort,
        effort_param="reasoning.effort",
    )
    format_ = None if request.text is None else request.text.format
    constraint, param = (
        constraint_of(request)
        if format_ is None
        else (format_constraint(format_, "text.format"), "text.format.schema")
    )
    if tools is None and reasoning is None and constraint is None:
        return PLAIN_SPEC
    last = context[-1]["type"]
    return AnswerSpec(
        tools=tools or (),
        tool_choice=choice,
        parallel_tool_calls=request.parallel_tool_calls is not False,
        answered=last in ("function_call_output", "custom_tool_call_output"),
        constraint=constraint,
        constraint_param=param,
        reasoning=reasoning,
    )


def cut_prompt(state: AppState, request: InputFields, prompt: list[int], max_tokens: int | None) -> list[int]:
    """With truncation "auto", a prompt that leaves no room loses its oldest tokens."""
    if request.truncation != "auto":
        return prompt
    limit = state.max_model_len
    keep = limit - (max_tokens if max_tokens is not None else max(1, limit // 8))
    if keep < 1:
        raise ApiError(
            400,
            f"max_output_tokens is {max_tokens}; it must be less than the context of {limit} tokens.",
            param="max_output_tokens",
        )
    return prompt[-keep:]
