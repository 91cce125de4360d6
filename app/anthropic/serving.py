"""POST /v1/messages and /v1/messages/count_tokens: check, plan, submit; a `MessageAnswer` does the rest."""

from __future__ import annotations

from typing import Any

import orjson

from app.anthropic.answer import MessageAnswer
from app.anthropic.convert import chat_messages, chat_tool_choice, chat_tools, in_anthropics_words
from app.anthropic.protocol import CountTokensRequest, MessagesRequest, count_decoder, decoder
from app.errors import ApiError, bad_request
from app.openai.answer import JSON_HEADERS
from app.openai.answer_plan import PLAIN_SPEC, AnswerSpec, plan_answer, with_canned
from app.openai.canned import canned_chat
from app.openai.event_run import EventRun
from app.openai.prompt_tokens import conversation_tokens
from app.openai.protocol import decode_body
from app.openai.reasoning import reasoning_options
from app.openai.sampling import check_sampling
from app.openai.serving import (
    Incoming,
    Launch,
    engine_request_id,
    launch,
    plan_limit,
    plan_request,
    submit_context,
)
from app.openai.structured import format_constraint
from app.openai.tool_choice import check_tools
from app.state import AppState
from app.stream_response import HotResponse
from app.text.chat_template import last_user_text

_LEAST_BUDGET_TOKENS = 1024


async def start_message(state: AppState, incoming: Incoming, response: HotResponse) -> None:
    """Answer one conversation with a message, whole or as a stream."""
    request = decode_body(decoder, incoming.body)
    model = state.models.resolve(request.model)
    _check_thinking(request)
    request.stop = _stop_sequences(request)
    request.stream_options = None
    sampling = check_sampling(request, "vllm", max_tokens=request.max_tokens)
    messages = chat_messages(request.system, request.messages)
    tools = chat_tools(request.tools)
    spec = _spec(state, request, messages, tools)
    context = submit_context(incoming, request.kv_transfer_params, state.engine.args.dp_size)
    prompt = await _prompt(state, messages, tools, len(incoming.body))
    most = plan_limit(state, len(prompt), sampling.max_tokens, "messages")
    spec = with_canned(spec, canned_chat(state, model, messages, incoming.headers))
    message_id = f"msg_{request.request_id or incoming.request_id}"
    echo_text = last_user_text(messages) if state.settings.content == "echo" else None
    plan = plan_answer(state.planner, plan_request(sampling, message_id, prompt, most, 0, echo_text), spec)
    hidden = request.thinking is not None and request.thinking.display == "omitted"
    answer = MessageAnswer(state, response, message_id, model, stream=sampling.stream, hide_thinking=hidden)
    run = EventRun(answer, engine_request_id(state, message_id, 0, 1), 0, plan, len(prompt))
    answer.start(run)
    launch(state, answer, [Launch(run, prompt)], request.priority or 0, context)


async def start_count(state: AppState, incoming: Incoming, response: HotResponse) -> None:
    """Count the tokens that the same conversation would have."""
    request = decode_body(count_decoder, incoming.body)
    state.models.resolve(request.model)
    messages = chat_messages(request.system, request.messages)
    tools = chat_tools(request.tools)
    _spec(state, request, messages, tools)
    prompt = await _prompt(state, messages, tools, len(incoming.body))
    response.respond(200, JSON_HEADERS, orjson.dumps({"input_tokens": len(prompt)}))
    response.write()


def _spec(
    state: AppState,
    request: CountTokensRequest,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
) -> AnswerSpec:
    choice, parallel = chat_tool_choice(request.tool_choice)
    kinds = {str(tool.get("type")) for tool in tools or ()} | {"function"}
    try:
        check_tools(tools, choice, kinds=tuple(kinds))
    except ApiError as error:
        raise in_anthropics_words(error) from None
    thinking, output = request.thinking, request.output_config
    reasoning = reasoning_options(
        state.settings,
        state.engine.args,
        effort=None if output is None else output.effort,
        effort_param="output_config.effort",
        switch=None if thinking is None else thinking.type != "disabled",
    )
    constraint = None
    if output is not None and output.format is not None:
        constraint = format_constraint({"name": "output", **output.format}, "output_config.format")
    if tools is None and reasoning is None and constraint is None:
        return PLAIN_SPEC
    return AnswerSpec(
        tools=tools or (),
        tool_choice=choice,
        parallel_tool_calls=parallel,
        answered=messages[-1]["role"] == "tool",
        constraint=constraint,
        constraint_param="output_config.format.schema",
        reasoning=reasoning,
    )


async def _prompt(
    state: AppState,
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]] | None,
    text_chars: int,
) -> list[int]:
    """A last message of the assistant's is a beginning that the answer goes on with."""
    goes_on = messages[-1]["role"] == "assistant" and not messages[-1].get("tool_calls")
    return await conversation_tokens(state, messages, text_chars, tools=tools, continue_final_message=goes_on)


def _check_thinking(request: MessagesRequest) -> None:
    thinking = request.thinking
    if thinking is None or thinking.type != "enabled":
        return
    budget, where = thinking.budget_tokens, "thinking.budget_tokens"
    if budget is None:
        raise bad_request(f"{where} is missing; thinking of type enabled needs it.", where)
    if budget < _LEAST_BUDGET_TOKENS:
        raise bad_request(f"{where} is {budget}; it must be at least {_LEAST_BUDGET_TOKENS}.", where)
    if budget >= request.max_tokens:
        raise bad_request(
            f"{where} is {budget}; it must be less than max_tokens ({request.max_tokens}).", where
        )


def _stop_sequences(request: MessagesRequest) -> list[str] | None:
    if request.stop_sequences is not None and "" in request.stop_sequences:
        raise bad_request("stop_sequences has an empty text; each needs a character.", "stop_sequences")
    return request.stop_sequences
