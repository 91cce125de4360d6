"""One response while it is made and after: its run, its status, who follows it, its body at any time.

    ResponseJob ── EventRun ── Follower (a client that streams it)

A foreground job ends when its client goes away; one in the background goes on. Must not know how a request
is checked or planned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from app.errors import ApiError
from app.json_body import encode_body
from app.openai.answer import JSON_HEADERS, RunGroup, reasoning_tokens, send_error
from app.openai.blocks import BlockWriter, read_blocks
from app.openai.event_run import EventRun, Follower
from app.openai.logprob_shapes import LogprobSource
from app.openai.responses.events import ResponseEvents
from app.openai.responses.input_items import Item
from app.openai.responses.items import ItemOptions, output_items
from app.state import AppState
from app.stream_response import HotResponse

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]

_CODES = {429: "rate_limit_exceeded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFacts:
    """What is known of a response before it is made. `echo`: the request's fields as every body shows them.

    `context`: the items that the prompt was made of, earlier turns included; `weight_bytes`: what it keeps
    alive. `top_logprobs` None: none.
    """

    id: str
    created_at_s: int
    echo: dict[str, Any]
    context: Sequence[Item]
    items: ItemOptions
    background: bool = False
    top_logprobs: int | None = None
    weight_bytes: int = 0


@dataclass(slots=True)
class _Outcome:
    """How it ended, as the body shows it."""

    completed_at_s: int | None = None
    error: dict[str, Any] | None = None
    refusal: ApiError | None = None
    output: list[Item] = field(default_factory=list)
    usage: dict[str, Any] | None = None


class ResponseJob(RunGroup):
    """`on_end` is called once when nothing more will change. Give it its run with `start` first."""

    def __init__(self, state: AppState, facts: ResponseFacts, on_end: Callable[[ResponseJob], None]) -> None:
        super().__init__(state)
        self.facts = facts
        self.status: Status = "queued" if facts.background else "in_progress"
        self._on_end = on_end
        self._outcome = _Outcome()
        self._reply_to: HotResponse | None = None
        self._run: EventRun

    @property
    def ended(self) -> bool:
        return self.status not in ("queued", "in_progress")

    @property
    def output(self) -> list[Item]:
        return self._outcome.output

    @property
    def run(self) -> EventRun:
        return self._run

    def start(self, run: EventRun) -> None:
        self._run = run

    def reply_to(self, response: HotResponse) -> None:
        """A client waits for the whole body; the job ends with it."""
        self._reply_to = response
        response.on_lost = self.cancel_all

    def stream_to(self, response: HotResponse) -> None:
        """A client follows from the start; a foreground job ends with it. Call it before the submission."""
        response.streaming = True
        follower = self._follower(response, 0)
        self._run.followers.append(follower)
        response.on_lost = (lambda: self._leave(follower)) if self.facts.background else self.cancel_all

    def accepted(self, response: HotResponse) -> None:
        """A background job was submitted: its client gets the body, or the stream's first events, at once."""
        for follower in self._run.followers:
            follower.push(self._opening(follower))
        if not self._run.followers:
            response.respond(200, JSON_HEADERS, encode_body(self.body()))
        response.write()

    def replay_to(self, response: HotResponse, starting_after: int | None) -> None:
        """A client follows a background job at any time, from the event after `starting_after` on."""
        response.streaming = True
        run = self._run
        follower = self._follower(response, 0 if starting_after is None else starting_after + 1)
        events = _events_of(follower)
        follower.push(self._opening(follower))
        if run.admitted_ms is not None or run.generated:
            follower.push([events.lifecycle("in_progress", self._early_body("in_progress"))])
        for token_id in run.token_ids():
            follower.push(follower.writer.token(token_id))
        if self.ended:
            if self.status in ("completed", "incomplete"):
                follower.push(follower.writer.finish(complete=not run.cut))
            self._end_stream(follower)
        else:
            run.followers.append(follower)
            response.on_lost = lambda: self._leave(follower)
        response.write()

    def body(self) -> dict[str, Any]:
        """The response object as it is now."""
        details = None
        if self.status == "incomplete":
            filtered = self._run.finish_reason == "content_filter"
            details = {"reason": "content_filter" if filtered else "max_output_tokens"}
        outcome = self._outcome
        body = {
            "id": self.facts.id,
            "object": "response",
            "created_at": self.facts.created_at_s,
            "status": self.status,
            "background": self.facts.background,
            "completed_at": outcome.completed_at_s,
            "error": outcome.error,
            "incomplete_details": details,
            **self.facts.echo,
            "output": outcome.output,
            "usage": outcome.usage,
        }
        params = self._run.kv_transfer_params
        return body if params is None else {**body, "kv_transfer_params": params}

    def first_output(self) -> None:
        if self.facts.background:
            self.admitted()
            return
        for follower in self._run.followers:
            follower.push(self._opening(follower))

    def admitted(self) -> None:
        """The engine has begun with it."""
        if self.status != "queued":
            return
        self.status = "in_progress"
        for follower in self._run.followers:
            follower.push([_events_of(follower).lifecycle("in_progress", self._early_body("in_progress"))])

    def cancel(self) -> None:
        """End a background job at the wish of a client."""
        if self.ended:
            return
        self.status = "cancelled"
        self.cancel_all()
        followers = list(self._run.followers)
        self._finish()
        for follower in followers:
            follower.response.write()

    def _complete(self) -> None:
        run, state = self._run, self.state
        if run.finish_reason == "abort":
            self._fail(ApiError(503, "The engine was put to sleep before the response was complete."))
            return
        self.status = "incomplete" if run.cut else "completed"
        assert run.plan is not None
        blocks = None
        for follower in run.followers:
            blocks = follower.writer.blocks
        if blocks is None:
            blocks = read_blocks(
                state.tokenizer,
                run.plan,
                run.generated,
                complete=not run.cut,
                logprobs=self._logprobs(),
            )
        self._outcome.output = output_items(self.facts.items, blocks)
        self._outcome.usage = self._usage()
        self._outcome.completed_at_s = int(time.time()) if self.status == "completed" else None
        self._finish()
        if self._reply_to is not None:
            self._reply_to.respond(200, JSON_HEADERS, encode_body(self.body()))

    def _fail(self, refusal: ApiError) -> None:
        self.status = "failed"
        code = _CODES.get(refusal.status, "invalid_prompt" if refusal.status < 500 else "server_error")
        self._outcome.error = {"code": code, "message": refusal.message}
        self._outcome.refusal = refusal
        unbegun = [self._reply_to] if self._reply_to is not None else []
        if not self.facts.background:
            unbegun += [f.response for f in self._run.followers if not f.response.begun]
        for response in unbegun:
            send_error(response, refusal, self.state.profile)
        self._finish()

    def _finish(self) -> None:
        """Nothing changes any more: end the streams, let go of what a replay does not need."""
        for follower in self._run.followers:
            if not follower.response.ended:
                self._end_stream(follower)
        self._run.followers.clear()
        plan = self._run.plan
        if plan is not None:
            plan.request = replace(plan.request, prompt_token_ids=())
        self._on_end(self)

    def _end_stream(self, follower: Follower) -> None:
        records: list[bytes] = []
        events = _events_of(follower)
        if self.status in ("completed", "incomplete") and not follower.writer.blocks:
            records += events.empty_message()
        error, refusal = self._outcome.error, self._outcome.refusal
        if error is not None and refusal is not None:
            records.append(events.error(error["code"], refusal.message, refusal.param))
        if self.status != "cancelled":
            records.append(events.lifecycle(self.status, self.body()))
        follower.push(records)
        follower.response.finish(b"")

    def _opening(self, follower: Follower) -> list[bytes]:
        events = _events_of(follower)
        names = ("created", "queued") if self.facts.background else ("created", "in_progress")
        status: Status = "queued" if self.facts.background else "in_progress"
        return [events.lifecycle(name, self._early_body(status)) for name in names]

    def _early_body(self, status: Status) -> dict[str, Any]:
        nothing: dict[str, Any] = {
            "error": None,
            "incomplete_details": None,
            "completed_at": None,
            "output": [],
            "usage": None,
        }
        return {**self.body(), "status": status, **nothing}

    def _follower(self, response: HotResponse, skip_records: int) -> Follower:
        assert self._run.plan is not None
        writer = BlockWriter(
            self.state.tokenizer,
            self.state.fragments,
            self._run.plan,
            ResponseEvents(self.facts.items),
            logprobs=self._logprobs(),
            interval_tokens=self.state.settings.stream_interval,
        )
        return Follower(response, writer, skip_records)

    def _leave(self, follower: Follower) -> None:
        if follower in self._run.followers:
            self._run.followers.remove(follower)

    def _logprobs(self) -> LogprobSource | None:
        plan, top = self._run.plan, self.facts.top_logprobs
        if plan is None or top is None:
            return None
        return LogprobSource(self.state.logprobs, plan.seed, top, "chat")

    def _usage(self) -> dict[str, Any]:
        run = self._run
        shown = run.cached_tokens if self.state.settings.enable_prompt_tokens_details else 0
        return {
            "input_tokens": run.num_prompt_tokens,
            "input_tokens_details": {"cached_tokens": shown, "cache_write_tokens": 0},
            "output_tokens": run.generated,
            "output_tokens_details": {"reasoning_tokens": reasoning_tokens(run)},
            "total_tokens": run.num_prompt_tokens + run.generated,
        }


class ResponseRun(EventRun):
    """Tells its job when the engine begins with it."""

    __slots__ = ()

    def admitted(self, reused_input_tokens: int, readmission: bool, dp_rank: int, now_ms: float) -> None:
        super().admitted(reused_input_tokens, readmission, dp_rank, now_ms)
        job = self.answer
        assert isinstance(job, ResponseJob)
        job.admitted()


def _events_of(follower: Follower) -> ResponseEvents:
    shape = follower.writer.shape
    assert isinstance(shape, ResponseEvents)
    return shape
