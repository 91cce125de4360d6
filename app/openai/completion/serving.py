"""Text completions: prompts in four forms, echo, suffix, best_of; one choice per prompt x n."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.errors import bad_request
from app.openai.answer import Answer, StreamAnswer, WholeAnswer, usage_of
from app.openai.answer_plan import AnswerSpec, plan_answer, with_canned
from app.openai.canned import canned_of, canned_text
from app.openai.choice import ChoiceRun, PlainStreamRun, ReadOptions, ReadStreamRun
from app.openai.chunks import ChoiceChunks, Envelope
from app.openai.completion.plan import completion_spec
from app.openai.completion.prompts import Prompt, parse_prompts
from app.openai.completion.protocol import CompletionRequest, decoder
from app.openai.logprob_shapes import LogprobSource, logprobs_object
from app.openai.prompt_logprobs import prompt_logprobs, wanted_prompt_logprobs
from app.openai.prompt_tokens import last_tokens
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
    tokenised,
)
from app.state import AppState
from app.stream_response import HotResponse
from app.text.plan import OutputPlan
from app.text.plan_reader import read_plan

# OpenAI's and vLLM's default for this route.
_DEFAULT_MAX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class _Encoded:
    """One prompt ready for the engine: its ids with the suffix's, and what echo shows."""

    token_ids: list[int]
    shown_ids: list[int]
    text: str


async def start_completion(state: AppState, incoming: Incoming, response: HotResponse) -> None:
    """Validate, plan and submit one text completion; the dispatcher writes the answer."""
    request = decode_body(decoder, incoming.body)
    model = state.models.resolve(request.model)
    sampling = check_sampling(
        request,
        state.profile,
        max_tokens=request.max_tokens,
        best_of=request.best_of,
        lowest_max_tokens=0 if request.echo else 1,
    )
    top_logprobs = None
    if request.logprobs is not None:
        top_logprobs = check_top_logprobs("logprobs", request.logprobs, state.settings.max_logprobs)
    prompt_top = wanted_prompt_logprobs(request, state.settings.max_logprobs)
    spec = completion_spec(request)
    context = submit_context(
        incoming, request.kv_transfer_params, state.engine.args.dp_size, request.cache_salt
    )
    prompts = parse_prompts(request.prompt)
    encoded = [await _encode(state, request, prompt) for prompt in prompts]
    envelope = Envelope(
        kind="text",
        id=f"cmpl-{request.request_id or incoming.request_id}",
        created=int(time.time()),
        model=model,
        profile=state.profile,
        include_usage=sampling.include_usage,
    )
    specs = [
        with_canned(spec, canned_text(state, model, prompt.text, incoming.headers)) for prompt in encoded
    ]
    job = _Completion(state, request, sampling, top_logprobs, envelope, encoded, specs)
    job.prompt_top = prompt_top
    answer, launches = job.prepare(response)
    answer.model = envelope.model
    launch(state, answer, launches, request.priority or 0, context)


async def _encode(state: AppState, request: CompletionRequest, prompt: Prompt) -> _Encoded:
    tokenizer = state.tokenizer
    if prompt.token_ids is not None:
        wants_text = request.echo or canned_of(state) is not None
        shown, text = prompt.token_ids, tokenizer.decode(prompt.token_ids) if wants_text else ""
    else:
        text = prompt.text or ""
        shown = await tokenised(lambda: tokenizer.encode(text), len(text))
    kept = last_tokens(shown, request.truncate_prompt_tokens)
    if kept is not shown:
        shown, text = kept, tokenizer.decode(kept)
    suffix = request.suffix or ""
    ids = shown + await tokenised(lambda: tokenizer.encode(suffix), len(suffix)) if suffix else shown
    return _Encoded(ids, shown, text)


class _Completion:
    """One request's way of building runs and its whole body."""

    def __init__(
        self,
        state: AppState,
        request: CompletionRequest,
        sampling: Sampling,
        top_logprobs: int | None,
        envelope: Envelope,
        prompts: Sequence[_Encoded],
        specs: Sequence[AnswerSpec],
    ) -> None:
        self._state = state
        self._request = request
        self._sampling = sampling
        self._top_logprobs = top_logprobs
        self._envelope = envelope
        self._prompts = prompts
        self._specs = specs
        self.prompt_top: int | None = None

    def prepare(self, response: HotResponse) -> tuple[Answer, list[Launch]]:
        state, sampling, envelope = self._state, self._sampling, self._envelope
        answer: Answer
        if sampling.stream:
            answer = StreamAnswer(state, response, envelope, (), running_usage=sampling.continuous_usage)
        else:
            answer = WholeAnswer(state, response, self._body)
        per_prompt = sampling.best_of
        total = len(self._prompts) * per_prompt
        if total > 16384:
            raise bad_request(f"The request asks for {total} choices; at most 16384 are allowed.", "n")
        launches: list[Launch] = []
        for at, prompt in enumerate(self._prompts):
            most = plan_limit(
                state, len(prompt.token_ids), sampling.max_tokens, "prompt", _DEFAULT_MAX_TOKENS
            )
            for copy in range(per_prompt):
                index = at * per_prompt + copy
                run = self._run(answer, response, index, total, prompt, most, copy, self._specs[at])
                run.prompt_index = at
                launches.append(Launch(run, prompt.token_ids))
        return answer, launches

    def _run(
        self,
        answer: Answer,
        response: HotResponse,
        index: int,
        total: int,
        prompt: _Encoded,
        most: int,
        copy: int,
        spec: AnswerSpec,
    ) -> ChoiceRun:
        state, envelope = self._state, self._envelope
        ident = engine_request_id(state, envelope.id, index, total)
        plan: OutputPlan | None = None
        if most > 0:
            echo_text = prompt.text if state.settings.content == "echo" else None
            ask = plan_request(self._sampling, envelope.id, prompt.token_ids, most, copy, echo_text)
            plan = plan_answer(state.planner, ask, spec)
        prompt_tokens = len(prompt.token_ids)
        if not self._sampling.stream:
            return ChoiceRun(answer, ident, index, plan, prompt_tokens)
        chunks = ChoiceChunks(envelope, index)
        if plan is not None and plan.plain and self._is_plain():
            return PlainStreamRun(
                answer,
                ident,
                index,
                plan,
                prompt_tokens,
                response=response,
                chunks=chunks,
                fragments=state.fragments,
            )
        return ReadStreamRun(
            answer,
            ident,
            index,
            plan,
            prompt_tokens,
            response=response,
            chunks=chunks,
            options=self._read_options(prompt, plan),
        )

    def _is_plain(self) -> bool:
        sampling = self._sampling
        extras = self._request.echo or sampling.continuous_usage or sampling.return_token_ids
        return not extras and self._top_logprobs is None and self._state.settings.stream_interval == 1

    def _read_options(self, prompt: _Encoded, plan: OutputPlan | None) -> ReadOptions:
        source = self._logprob_source(plan)
        echo = bool(self._request.echo)
        return ReadOptions(
            tokenizer=self._state.tokenizer,
            interval_tokens=self._state.settings.stream_interval,
            token_ids=self._sampling.return_token_ids,
            running_usage=self._sampling.continuous_usage,
            logprobs=source,
            prefix_text=prompt.text if echo else "",
            prefix_entries=source.prompt_entries(prompt.shown_ids) if source is not None and echo else None,
            suffix_text=(self._request.suffix or "") if echo else "",
        )

    def _logprob_source(self, plan: OutputPlan | None) -> LogprobSource | None:
        if self._top_logprobs is None:
            return None
        return LogprobSource(
            self._state.logprobs,
            0 if plan is None else plan.seed,
            self._top_logprobs,
            "text",
            as_ids=bool(self._request.return_tokens_as_token_ids),
        )

    def _body(self, runs: Sequence[ChoiceRun]) -> dict[str, Any]:
        envelope = self._envelope
        body: dict[str, Any] = {
            "id": envelope.id,
            "object": "text_completion",
            "created": envelope.created,
            "model": envelope.model,
            "choices": [self._choice(run, index) for index, run in enumerate(self._best(runs))],
            "usage": usage_of(runs, details=self._state.settings.enable_prompt_tokens_details),
            "system_fingerprint": None,
        }
        params = next((run.kv_transfer_params for run in runs if run.kv_transfer_params is not None), None)
        if params is not None:
            body["kv_transfer_params"] = params
        return body

    def _best(self, runs: Sequence[ChoiceRun]) -> list[ChoiceRun]:
        """The n of each prompt's best_of with the highest mean logprob, best first."""
        n, best_of = self._sampling.n, self._sampling.best_of
        if best_of == n:
            return list(runs)
        best: list[ChoiceRun] = []
        for start in range(0, len(runs), best_of):
            group = sorted(runs[start : start + best_of], key=self._mean_logprob, reverse=True)
            best += group[:n]
        return best

    def _mean_logprob(self, run: ChoiceRun) -> float:
        if run.plan is None or not run.generated:
            return 0.0
        source = LogprobSource(self._state.logprobs, run.plan.seed, 0, "text")
        values = [source.entry(at, token_id)["token_logprob"] for at, token_id in enumerate(run.token_ids())]
        return float(sum(values)) / len(values)

    def _choice(self, run: ChoiceRun, index: int) -> dict[str, Any]:
        request, prompt = self._request, self._prompts[run.prompt_index]
        text = "" if run.plan is None else _visible(self._state, run)
        if request.echo:
            text = prompt.text + text + (request.suffix or "")
        choice: dict[str, Any] = {
            "index": index,
            "text": text,
            "logprobs": self._whole_logprobs(run, prompt),
            "finish_reason": run.finish_reason,
        }
        if self._state.profile == "vllm":
            choice["stop_reason"] = run.stop_reason
        if self._sampling.return_token_ids:
            choice |= {"token_ids": run.token_ids(), "prompt_token_ids": prompt.token_ids}
        if self.prompt_top is not None:
            choice["prompt_logprobs"] = prompt_logprobs(
                self._state.logprobs, prompt.token_ids, self.prompt_top
            )
        return choice

    def _whole_logprobs(self, run: ChoiceRun, prompt: _Encoded) -> dict[str, Any] | None:
        source = self._logprob_source(run.plan)
        if source is None:
            return None
        entries = source.prompt_entries(prompt.shown_ids) if self._request.echo else []
        entries += [source.entry(at, token_id) for at, token_id in enumerate(run.token_ids())]
        return logprobs_object("text", entries)


def _visible(state: AppState, run: ChoiceRun) -> str:
    assert run.plan is not None
    text = read_plan(state.tokenizer, run.plan, run.generated)
    return text.reasoning + text.content
