"""One HTTP answer made of several runs: when it begins, ends, fails or loses its client.

    RunGroup ── Answer ── StreamAnswer   role records, usage record, [DONE]
                       └─ WholeAnswer    one JSON body when all runs have ended

Must not know routes; what a whole body looks like comes in as a function.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from app import sse
from app.errors import ApiError, error_body, from_exception
from app.openai.choice import ChoiceRun, Outcome
from app.openai.chunks import ChoiceChunks, Envelope
from app.stream_response import Header, HotResponse

if TYPE_CHECKING:
    from app.state import AppState

logger = logging.getLogger("mocker.http")


class Explainer(Protocol):
    """Tells a client why its answer took as long as it did."""

    def headers(self, runs: Sequence[ChoiceRun]) -> list[Header]:
        """When the first token is there."""

    def extension(self, runs: Sequence[ChoiceRun]) -> dict[str, Any]:
        """When all runs have ended."""


JSON_HEADERS = ((b"content-type", b"application/json"),)


class RunGroup:
    """Base: follows the runs of one answer. Add all runs before the first is submitted.

    `on_complete` is called when all runs have ended well, before the answer's end goes out.
    """

    def __init__(self, state: AppState) -> None:
        self.state = state
        self.runs: list[ChoiceRun] = []
        self.model = ""
        self.explainer: Explainer | None = None
        self.traceparent: str | None = None
        self.on_complete: Callable[[], None] | None = None
        self._left = 0
        self._over = False

    def add_runs(self, runs: Sequence[ChoiceRun]) -> None:
        self.runs += runs
        self._left += len(runs)
        self.state.load += 1

    def first_output(self) -> None: ...

    def run_ended(self, run: ChoiceRun) -> None:
        self._report(run)
        self._left -= 1
        if self._left == 0 and not self._over:
            self._close()
            try:
                if self.on_complete is not None:
                    self.on_complete()
                self._complete()
            except Exception as exc:
                # Nobody else would end this answer, and its client would wait for ever.
                logger.exception("The answer to %s could not be put together.", run.request_id)
                self._fail(from_exception(exc))
            self._let_go()

    def run_failed(self, run: ChoiceRun, error: Exception) -> None:
        """The first failure ends the whole answer; its other runs are cancelled."""
        self._report(run)
        if self._over:
            return
        self._close()
        self._cancel_running()
        refusal = from_exception(error)
        if refusal.status == 500:
            logger.error("Request %s failed.", run.request_id, exc_info=error)
        self._fail(refusal)

    def cancel_all(self) -> None:
        """The client is gone, or the request was refused half-way: free what the runs hold."""
        if not self._over:
            self._close()
        self._cancel_running()

    def _complete(self) -> None:
        raise NotImplementedError

    def _fail(self, refusal: ApiError) -> None:
        raise NotImplementedError

    def _let_go(self) -> None:
        """The answer is complete."""

    def _close(self) -> None:
        self._over = True
        self.state.load -= 1

    def _cancel_running(self) -> None:
        for run in self.runs:
            if run.outcome is Outcome.RUNNING:
                run.outcome = Outcome.CANCELLED
                self.state.dispatcher.forget(run.request_id)
                self.state.submitter.cancel(run)
                self._report(run)

    def _report(self, run: ChoiceRun) -> None:
        for observer in self.state.observers:
            try:
                observer.on_request_end(run)
            except Exception:
                logger.exception("%s failed.", type(observer).__name__)


class Answer(RunGroup):
    """A group whose answer is one HTTP response; it ends when the client goes away."""

    def __init__(self, state: AppState, response: HotResponse) -> None:
        super().__init__(state)
        self.response = response
        response.on_lost = self.cancel_all

    def _let_go(self) -> None:
        # Both would lead back here: without them no answer is left to the garbage collector.
        self.runs = []
        self.response.on_lost = None

    def _fail(self, refusal: ApiError) -> None:
        send_error(self.response, refusal, self.state.profile)


class StreamAnswer(Answer):
    """`roles` are the chat choices whose first records come before any token; empty for text completions."""

    def __init__(
        self,
        state: AppState,
        response: HotResponse,
        envelope: Envelope,
        roles: Sequence[ChoiceChunks],
        *,
        running_usage: bool,
    ) -> None:
        super().__init__(state, response)
        response.streaming = True
        self.model = envelope.model
        self._envelope = envelope
        self._roles: Sequence[ChoiceChunks] | None = roles
        self._running_usage = running_usage

    def first_output(self) -> None:
        if self.explainer is not None and not self.response.begun:
            self.response.add_headers(self.explainer.headers(self.runs))
        roles, self._roles = self._roles, None
        if not roles:
            return
        usage = None
        if self._running_usage:
            prompt_tokens = self.runs[0].num_prompt_tokens
            usage = orjson.dumps(
                {"prompt_tokens": prompt_tokens, "completion_tokens": 0, "total_tokens": prompt_tokens}
            )
        for chunks in roles:
            self.response.push(chunks.role(usage))

    def _complete(self) -> None:
        if self._envelope.include_usage:
            usage = usage_of(self.runs, details=self.state.settings.enable_prompt_tokens_details)
            self.response.push(self._envelope.usage_record(orjson.dumps(usage)))
        if self.explainer is not None and self.response.pending:
            last = self.response.pending[-1]
            explanation = orjson.dumps(self.explainer.extension(self.runs))
            self.response.pending[-1] = sse.with_field(last, b"mocker", explanation)
        self.response.finish(sse.DONE)


class WholeAnswer(Answer):
    """`build` makes the body from the ended runs."""

    def __init__(
        self, state: AppState, response: HotResponse, build: Callable[[Sequence[ChoiceRun]], dict[str, Any]]
    ) -> None:
        super().__init__(state, response)
        self._build = build

    def _complete(self) -> None:
        answer = self._build(self.runs)
        if self.explainer is not None:
            self.response.add_headers(self.explainer.headers(self.runs))
            answer["mocker"] = self.explainer.extension(self.runs)
        self.response.respond(200, JSON_HEADERS, orjson.dumps(answer))


def send_error(response: HotResponse, error: ApiError, profile: str) -> None:
    """Queue an error: with its status before anything was sent, else as a record that ends the stream."""
    body = error_body(error, profile)
    if response.begun:
        response.push(sse.data(body))
        response.finish(sse.DONE)
        return
    headers = [
        *JSON_HEADERS,
        *((name.lower().encode(), value.encode()) for name, value in error.headers.items()),
    ]
    response.respond(error.status, headers, body)


def usage_of(runs: Sequence[ChoiceRun], *, details: bool) -> dict[str, Any]:
    """Exact counts of runs that come in order of their prompts.

    Each prompt counts once; cached tokens are what its first choice's first admission found.
    """
    prompt = completion = cached = reasoning = 0
    seen = -1
    for run in runs:
        completion += run.generated
        reasoning += reasoning_tokens(run)
        if run.prompt_index > seen:
            seen = run.prompt_index
            prompt += run.num_prompt_tokens
            cached += run.cached_tokens
    usage: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if details:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    if reasoning:
        usage["completion_tokens_details"] = {"reasoning_tokens": reasoning}
    return usage


def reasoning_tokens(run: ChoiceRun) -> int:
    """How many of the generated tokens are reasoning."""
    if run.plan is None or run.plan.plain:
        return 0
    spans = (segment for segment in run.plan.segments if segment.kind == "reasoning")
    return sum(max(0, min(segment.end, run.generated) - segment.start) for segment in spans)
