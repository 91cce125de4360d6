"""Chat completions: checks what only chat has, plans each choice, and puts the whole answer together."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from app.errors import bad_request
from app.openai.answer import Answer, StreamAnswer, WholeAnswer, usage_of
from app.openai.answer_plan import plan_answer, with_canned
from app.openai.canned import canned_chat
from app.openai.chat_completion.message import whole_message
from app.openai.chat_completion.plan import chat_spec, is_legacy, shows_reasoning
from app.openai.chat_completion.protocol import ChatCompletionRequest, decoder
from app.openai.choice import ChoiceRun, PlainStreamRun, ReadOptions, ReadStreamRun
from app.openai.chunks import ChoiceChunks, Envelope
from app.openai.logprob_shapes import LogprobSource, logprobs_object
from app.openai.prompt_logprobs import prompt_logprobs, wanted_prompt_logprobs
from app.openai.prompt_tokens import conversation_tokens, last_tokens
from app.openai.protocol import decode_body
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
from app.openai.stored.store import keep_when_complete
from app.state import AppState
from app.stream_response import HotResponse
from app.text.chat_template import last_user_text
from app.text.plan import OutputPlan
from app.text.plan_reader import read_plan


async def start_chat(state: AppState, incoming: Incoming, response: HotResponse) -> None:
    """Validate, plan and submit one chat completion; the dispatcher writes the answer."""
    request = decode_body(decoder, incoming.body)
    model = state.models.resolve(request.model)
    sampling = _check(state, request)
    top_logprobs = _top_logprobs(state, request)
    prompt_top = wanted_prompt_logprobs(request, state.settings.max_logprobs)
    spec = chat_spec(state, request)
    context = submit_context(
        incoming, request.kv_transfer_params, state.engine.args.dp_size, request.cache_salt
    )
    prompt = await _prompt(state, request, spec.tools, len(incoming.body))
    most = plan_limit(state, len(prompt), sampling.max_tokens, "messages")
    spec = with_canned(spec, canned_chat(state, model, request.messages, incoming.headers))
    chat = _Chat(state, request, sampling, top_logprobs)
    chat.prompt_top = prompt_top
    chat.prompt = prompt
    envelope = Envelope(
        kind="chat",
        id=f"chatcmpl-{request.request_id or incoming.request_id}",
        created=int(time.time()),
        model=model,
        profile=state.profile,
        include_usage=sampling.include_usage,
    )
    echo_text = last_user_text(request.messages) if state.settings.content == "echo" else None
    plans = [
        plan_answer(state.planner, plan_request(sampling, envelope.id, prompt, most, index, echo_text), spec)
        for index in range(sampling.n)
    ]
    if is_legacy(request):
        for plan in plans:
            if plan.finish_reason == "tool_calls":
                plan.finish_reason = "function_call"
    answer, runs = chat.runs(response, envelope, plans, len(prompt))
    answer.model = model
    if request.store:
        keep_when_complete(
            state, answer, request.messages, request.metadata, lambda: chat.body(envelope, answer.runs)
        )
    launch(state, answer, [Launch(run, prompt) for run in runs], request.priority or 0, context)


def _check(state: AppState, request: ChatCompletionRequest) -> Sampling:
    name = "max_tokens" if request.max_completion_tokens is None else "max_completion_tokens"
    sampling = check_sampling(request, state.profile, max_tokens=getattr(request, name), max_tokens_name=name)
    if not request.messages:
        raise bad_request("messages is empty; it must have at least one message.", "messages")
    for at, message in enumerate(request.messages):
        if type(message.get("content")) is list:
            _check_images(message["content"], f"messages.{at}.content")
    return sampling


def _check_images(parts: list[Any], where: str) -> None:
    for at, part in enumerate(parts):
        if isinstance(part, dict) and part.get("type") == "image_url" and type(part.get("image_url")) is str:
            raise bad_request(
                f'{where}.{at}.image_url is a text; it must be an object such as {{"url": "..."}}.',
                f"{where}.{at}.image_url",
            )


def _top_logprobs(state: AppState, request: ChatCompletionRequest) -> int | None:
    """None: no logprobs wanted."""
    top = request.top_logprobs
    if top is not None:
        top = check_top_logprobs("top_logprobs", top, state.settings.max_logprobs)
        if top and not request.logprobs:
            raise bad_request(f"top_logprobs is {top}, but logprobs is not true; set it too.", "top_logprobs")
    return (top or 0) if request.logprobs else None


async def _prompt(
    state: AppState, request: ChatCompletionRequest, tools: Sequence[Mapping[str, Any]], text_chars: int
) -> list[int]:
    prompt = await conversation_tokens(
        state,
        request.messages,
        text_chars,
        tools=tools,
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=bool(request.continue_final_message),
    )
    return last_tokens(prompt, request.truncate_prompt_tokens)


class _Chat:
    """One request's way of building runs and its whole body."""

    __slots__ = ("prompt", "prompt_top", "request", "sampling", "state", "top_logprobs")

    def __init__(
        self, state: AppState, request: ChatCompletionRequest, sampling: Sampling, top_logprobs: int | None
    ) -> None:
        self.state = state
        self.request = request
        self.sampling = sampling
        self.top_logprobs = top_logprobs
        self.prompt: list[int] = []
        self.prompt_top: int | None = None

    def runs(
        self, response: HotResponse, envelope: Envelope, plans: Sequence[OutputPlan], prompt_tokens: int
    ) -> tuple[Answer, list[ChoiceRun]]:
        state, total = self.state, len(plans)
        ids = [engine_request_id(state, envelope.id, index, total) for index in range(total)]
        if not self.sampling.stream:
            whole = WholeAnswer(state, response, lambda runs: self.body(envelope, runs))
            return whole, [
                ChoiceRun(whole, ids[at], at, plan, prompt_tokens) for at, plan in enumerate(plans)
            ]
        chunks = [ChoiceChunks(envelope, index) for index in range(total)]
        stream = StreamAnswer(state, response, envelope, chunks, running_usage=self.sampling.continuous_usage)
        runs: list[ChoiceRun] = []
        for at, plan in enumerate(plans):
            if plan.plain and self._is_plain():
                runs.append(
                    PlainStreamRun(
                        stream,
                        ids[at],
                        at,
                        plan,
                        prompt_tokens,
                        response=response,
                        chunks=chunks[at],
                        fragments=state.fragments,
                    )
                )
            else:
                runs.append(
                    ReadStreamRun(
                        stream,
                        ids[at],
                        at,
                        plan,
                        prompt_tokens,
                        response=response,
                        chunks=chunks[at],
                        options=self._read_options(plan),
                    )
                )
        return stream, runs

    def _is_plain(self) -> bool:
        return (
            self.top_logprobs is None
            and not self.sampling.continuous_usage
            and not self.sampling.return_token_ids
            and self.state.settings.stream_interval == 1
        )

    def _read_options(self, plan: OutputPlan) -> ReadOptions:
        return ReadOptions(
            tokenizer=self.state.tokenizer,
            interval_tokens=self.state.settings.stream_interval,
            token_ids=self.sampling.return_token_ids,
            running_usage=self.sampling.continuous_usage,
            logprobs=self._logprob_source(plan),
            hide_reasoning=not shows_reasoning(self.request),
            legacy_function=is_legacy(self.request),
        )

    def _logprob_source(self, plan: OutputPlan) -> LogprobSource | None:
        if self.top_logprobs is None:
            return None
        return LogprobSource(
            self.state.logprobs,
            plan.seed,
            self.top_logprobs,
            "chat",
            as_ids=bool(self.request.return_tokens_as_token_ids),
        )

    def body(self, envelope: Envelope, runs: Sequence[ChoiceRun]) -> dict[str, Any]:
        body: dict[str, Any] = {
            "id": envelope.id,
            "object": "chat.completion",
            "created": envelope.created,
            "model": envelope.model,
            "choices": [self._choice(run) for run in runs],
            "usage": usage_of(runs, details=self.state.settings.enable_prompt_tokens_details),
            "service_tier": None,
            "system_fingerprint": None,
        }
        params = next((run.kv_transfer_params for run in runs if run.kv_transfer_params is not None), None)
        if params is not None:
            body["kv_transfer_params"] = params
        if self.prompt_top is not None:
            body["prompt_logprobs"] = prompt_logprobs(self.state.logprobs, self.prompt, self.prompt_top)
        return body

    def _choice(self, run: ChoiceRun) -> dict[str, Any]:
        assert run.plan is not None
        message = whole_message(
            read_plan(self.state.tokenizer, run.plan, run.generated),
            run.plan.seed,
            self.state.profile,
            legacy=is_legacy(self.request),
            reasoning=shows_reasoning(self.request),
        )
        choice: dict[str, Any] = {
            "index": run.index,
            "message": message,
            "logprobs": self._whole_logprobs(run),
            "finish_reason": run.finish_reason,
        }
        if self.state.profile == "vllm":
            choice["stop_reason"] = run.stop_reason
        if self.sampling.return_token_ids:
            choice["token_ids"] = run.token_ids()
        return choice

    def _whole_logprobs(self, run: ChoiceRun) -> dict[str, Any] | None:
        source = None if run.plan is None else self._logprob_source(run.plan)
        if source is None:
            return None
        entries = [source.entry(position, token_id) for position, token_id in enumerate(run.token_ids())]
        return logprobs_object("chat", entries)
