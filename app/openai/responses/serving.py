"""POST /v1/responses and /v1/responses/input_tokens: check, plan, submit; a `ResponseJob` does the rest."""

from __future__ import annotations

import re
import secrets
import time
from hashlib import blake2b
from typing import Any

import orjson

from app.errors import bad_request
from app.openai.answer import JSON_HEADERS
from app.openai.answer_plan import plan_answer, with_canned
from app.openai.canned import canned_chat
from app.openai.metadata import check_metadata
from app.openai.protocol import decode_body
from app.openai.responses.items import ItemOptions
from app.openai.responses.job import ResponseFacts, ResponseJob, ResponseRun
from app.openai.responses.prompt import answer_spec, context_of, cut_prompt, messages_of, prompt_tokens
from app.openai.responses.protocol import ResponsesRequest, decoder, input_tokens_decoder
from app.openai.responses.store import ResponseStore, response_store
from app.openai.sampling import Sampling, check_sampling, check_top_logprobs
from app.openai.serving import (
    Incoming,
    Launch,
    engine_request_id,
    launch,
    plan_limit,
    plan_request,
    submit_context,
)
from app.state import AppState
from app.stream_response import HotResponse
from app.text.chat_template import last_user_text

_PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_WITH_LOGPROBS = "message.output_text.logprobs"
_WITH_ENCRYPTED = "reasoning.encrypted_content"


async def start_response(state: AppState, incoming: Incoming, response: HotResponse) -> None:
    """Create one response: whole, as a stream, or in the background."""
    request = decode_body(decoder, incoming.body)
    model = state.models.resolve(request.model)
    store = response_store(state)
    sampling = _check(state, request)
    facts_id = _new_id(store, request.request_id or incoming.request_id)
    context = context_of(store, request, facts_id)
    spec = answer_spec(state, request, context)
    facts = ResponseFacts(
        id=facts_id,
        created_at_s=int(time.time()),
        echo=_echo(request, model),
        context=context,
        items=ItemOptions(
            facts_id,
            encrypted_reasoning=_WITH_ENCRYPTED in (request.include or ()),
            summary=bool(
                request.reasoning and (request.reasoning.summary or request.reasoning.generate_summary)
            ),
        ),
        background=bool(request.background),
        top_logprobs=_top_logprobs(state, request),
        weight_bytes=len(incoming.body) + store.weight_of_context(request.previous_response_id),
    )
    submission = submit_context(
        incoming, request.kv_transfer_params, state.engine.args.dp_size, request.cache_salt
    )
    messages = messages_of(request, context)
    prompt = await prompt_tokens(state, request, messages, len(incoming.body))
    prompt = cut_prompt(state, request, prompt, sampling.max_tokens)
    most = plan_limit(state, len(prompt), sampling.max_tokens, "input")
    spec = with_canned(spec, canned_chat(state, model, messages, incoming.headers))
    echo_text = last_user_text(messages) if state.settings.content == "echo" else None
    plan = plan_answer(state.planner, plan_request(sampling, facts.id, prompt, most, 0, echo_text), spec)
    job = ResponseJob(state, facts, _at_end(store, request))
    run = ResponseRun(job, engine_request_id(state, facts.id, 0, 1), 0, plan, len(prompt))
    job.model = model
    job.start(run)
    if sampling.stream:
        job.stream_to(response)
    elif not facts.background:
        job.reply_to(response)
    launch(state, job, [Launch(run, prompt)], request.priority or 0, submission)
    if facts.background:
        store.put(job)
        job.accepted(response)


async def start_input_tokens(state: AppState, incoming: Incoming, response: HotResponse) -> None:
    """Count the tokens that the same input would have."""
    request = decode_body(input_tokens_decoder, incoming.body)
    state.models.resolve(request.model)
    context = context_of(response_store(state), request, "count")
    answer_spec(state, request, context)
    prompt = await prompt_tokens(state, request, messages_of(request, context), len(incoming.body))
    body = {"object": "response.input_tokens", "input_tokens": len(prompt)}
    response.respond(200, JSON_HEADERS, orjson.dumps(body))
    response.write()


def _check(state: AppState, request: ResponsesRequest) -> Sampling:
    if request.background and request.store is False:
        raise bad_request(
            "background is true, but store is false; a background response is kept, so leave store out.",
            "background",
        )
    check_metadata(request.metadata)
    if request.max_tool_calls is not None and request.max_tool_calls < 1:
        raise bad_request(
            f"max_tool_calls is {request.max_tool_calls}; it must be at least 1.", "max_tool_calls"
        )
    if request.n is not None and request.n != 1:
        raise bad_request(f"n is {request.n}; it must be 1, since a response has one answer.", "n")
    return check_sampling(
        request,
        state.profile,
        max_tokens=request.max_output_tokens,
        max_tokens_name="max_output_tokens",
    )


def _top_logprobs(state: AppState, request: ResponsesRequest) -> int | None:
    """None: no logprobs wanted. As at OpenAI they come only if `include` asks for them."""
    top = check_top_logprobs("top_logprobs", request.top_logprobs or 0, state.settings.max_logprobs)
    return top if _WITH_LOGPROBS in (request.include or ()) else None


def _new_id(store: ResponseStore, request_id: str) -> str:
    """From the request's id; always good as a part of a path, and never one that is kept."""
    name = (
        request_id
        if _PLAIN_ID.fullmatch(request_id)
        else blake2b(request_id.encode(), digest_size=16).hexdigest()
    )
    ident = name if name.startswith("resp_") else f"resp_{name}"
    return f"{ident}_{secrets.token_hex(4)}" if ident in store else ident


def _at_end(store: ResponseStore, request: ResponsesRequest) -> Any:
    """What is kept: background jobs from their start on, others when they ended well."""

    def at_end(job: ResponseJob) -> None:
        if job.facts.background:
            store.ended(job)
        elif request.store is not False and job.status in ("completed", "incomplete"):
            store.put(job)

    return at_end


def _echo(request: ResponsesRequest, model: str) -> dict[str, Any]:
    """The request's fields as the response object shows them, with OpenAI's defaults."""
    reasoning = request.reasoning
    text = request.text
    summary = None if reasoning is None else reasoning.summary or reasoning.generate_summary
    return {
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "max_tool_calls": request.max_tool_calls,
        "metadata": request.metadata or {},
        "model": model,
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": request.previous_response_id,
        "prompt_cache_key": request.prompt_cache_key,
        "reasoning": {"effort": None if reasoning is None else reasoning.effort, "summary": summary},
        "safety_identifier": request.safety_identifier,
        "service_tier": "default" if request.service_tier in (None, "auto") else request.service_tier,
        "store": request.store is not False,
        "temperature": 1.0 if request.temperature is None else request.temperature,
        "text": {
            "format": (text and text.format) or {"type": "text"},
            "verbosity": (text and text.verbosity) or "medium",
        },
        "tool_choice": request.tool_choice or "auto",
        "tools": [_shown_tool(tool) for tool in request.tools or ()],
        "top_logprobs": request.top_logprobs or 0,
        "top_p": 1.0 if request.top_p is None else request.top_p,
        "truncation": request.truncation or "disabled",
        "user": request.user,
    }


def _shown_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """A function in the flat shape of Responses, whichever the request had."""
    if tool.get("type") != "function":
        return tool
    function = tool.get("function", tool)
    return {"parameters": None, "strict": None, "description": None, **function, "type": "function"}
