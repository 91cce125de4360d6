"""One engine request as a choice of an answer: the sinks that the dispatcher feeds, and what they record.

    ChoiceRun             book-keeping only: a whole answer, whose text is read from the plan at its end
    ├── PlainStreamRun    streamed; every token stands alone: splice its JSON fragment (the hot path)
    └── ReadStreamRun     streamed; stops, segments, logprobs, running usage, several tokens a chunk

Must not know the HTTP request: an `AnswerEvents` hears of the first output, the end and failures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import orjson

from app.openai.chunks import ChoiceChunks, FinishReason
from app.openai.logprob_shapes import LogprobSource, logprobs_object
from app.stream_response import HotResponse
from app.text.plan import OutputPlan
from app.text.plan_reader import Delta, PlanReader
from app.text.token_json import TokenJson, json_fragment
from app.text.tokenizer import Tokenizer
from app.text.tool_calls import call_id
from mocker_core.errors import RequestError
from mocker_core.events import OutputSignal
from mocker_core.request import RequestId


class Outcome(StrEnum):
    """How a run stands or ended; NEW: the engine has not got it."""

    NEW = "new"
    RUNNING = "running"
    COMPLETED = "completed"
    REJECTED = "rejected"
    FAILED = "failed"
    CANCELLED = "cancelled"


class AnswerEvents(Protocol):
    """The answer that a run belongs to."""

    def first_output(self) -> None: ...

    def run_ended(self, run: ChoiceRun) -> None: ...

    def run_failed(self, run: ChoiceRun, error: Exception) -> None: ...


class ChoiceRun:
    """One engine request: its plan, what happened to it and when (engine ms)."""

    __slots__ = (
        "admitted_ms",
        "answer",
        "arrival_ms",
        "cached_tokens",
        "dp_rank",
        "finish_reason",
        "first_token_ms",
        "generated",
        "index",
        "kv_transfer_params",
        "last_token_ms",
        "num_prompt_tokens",
        "outcome",
        "plan",
        "preemptions",
        "prompt_index",
        "request_id",
    )

    def __init__(
        self,
        answer: AnswerEvents,
        request_id: RequestId,
        index: int,
        plan: OutputPlan | None,
        num_prompt_tokens: int,
    ) -> None:
        self.answer = answer
        self.request_id = request_id
        self.index = index
        self.plan = plan
        self.num_prompt_tokens = num_prompt_tokens
        self.prompt_index = 0
        self.generated = 0
        self.cached_tokens = 0
        self.preemptions = 0
        self.dp_rank: int | None = None
        self.arrival_ms = 0.0
        self.admitted_ms: float | None = None
        self.first_token_ms: float | None = None
        self.last_token_ms: float | None = None
        self.outcome = Outcome.NEW
        self.finish_reason: FinishReason | None = None
        self.kv_transfer_params: Mapping[str, Any] | None = None

    @property
    def stop_reason(self) -> str | int | None:
        """The stop string or token id that ended it, if one did."""
        return self.plan.stop_reason if self.plan is not None and self.finish_reason == "stop" else None

    def admitted(self, reused_input_tokens: int, readmission: bool, dp_rank: int, now_ms: float) -> None:
        if self.admitted_ms is None:
            self.admitted_ms = now_ms
            self.cached_tokens = reused_input_tokens
            self.dp_rank = dp_rank

    def preempted(self) -> None:
        self.preemptions += 1

    def token(self, token_id: int | None, end_ms: float) -> None:
        # Hot for whole answers, whose text is made at the end.
        self.generated += 1
        if self.generated == 1:
            self.first_token_ms = end_ms
            self.answer.first_output()

    def end(self, signal: OutputSignal, end_ms: float) -> None:
        if signal.rejected:
            self.outcome = Outcome.REJECTED
            self.answer.run_failed(self, _rejected(self.num_prompt_tokens))
            return
        self.last_token_ms = end_ms
        token_id = signal.token_id
        if signal.hidden and token_id is None and self.plan is not None:
            token_id = self.plan[0]
        if token_id is not None:
            self._count(end_ms)
        self.outcome = Outcome.COMPLETED
        plan = self.plan
        whole = plan is not None and self.generated >= len(plan)
        self.finish_reason = plan.finish_reason if whole and plan is not None else "length"
        self._render_last(token_id, end_ms)
        self.answer.run_ended(self)

    def fail(self, error: Exception) -> None:
        self.outcome = Outcome.FAILED
        self.answer.run_failed(self, error)

    def abort(self, now_ms: float) -> None:
        """End it with what it has. The dispatcher and the engine must have forgotten it before."""
        self.outcome = Outcome.CANCELLED
        self.finish_reason = "abort"
        self.answer.first_output()
        self._render_last(None, now_ms)
        self.answer.run_ended(self)

    def token_ids(self) -> list[int]:
        """What was generated so far."""
        return [] if self.plan is None else self.plan[: self.generated]

    def _count(self, end_ms: float) -> None:
        self.generated += 1
        if self.generated == 1:
            self.first_token_ms = end_ms
            self.answer.first_output()

    def _render_last(self, token_id: int | None, end_ms: float) -> None:
        """For the streamed kinds."""


class PlainStreamRun(ChoiceRun):
    """Each token is one record: constant head, the token's fragment, constant tail."""

    __slots__ = ("_chunks", "_dirty", "_fragments", "_head", "_response", "_tail")

    def __init__(
        self,
        answer: AnswerEvents,
        request_id: RequestId,
        index: int,
        plan: OutputPlan,
        num_prompt_tokens: int,
        *,
        response: HotResponse,
        chunks: ChoiceChunks,
        fragments: TokenJson,
    ) -> None:
        super().__init__(answer, request_id, index, plan, num_prompt_tokens)
        self._chunks = chunks
        self._head = chunks.plain_head
        self._tail = chunks.plain_tail
        self._fragments = fragments
        self._dirty = response.queue.dirty
        self._response = response

    def token(self, token_id: int | None, end_ms: float) -> None:
        # Hot: once per token.
        self.generated += 1
        if self.generated == 1:
            self.first_token_ms = end_ms
            self.answer.first_output()
        # What `push` does, without its checks: a response that ended or is lost has no running run.
        response = self._response
        pending = response.pending
        if not pending:
            self._dirty.append(response)
        if response.plan_ms is None:
            response.plan_ms = end_ms
        pending.append(self._head + self._fragments[token_id] + self._tail)  # type: ignore[index] # has a token

    def _render_last(self, token_id: int | None, end_ms: float) -> None:
        response, chunks = self._response, self._chunks
        if response.plan_ms is None:
            response.plan_ms = end_ms
        body = None if token_id is None else chunks.content(self._fragments[token_id])
        assert self.finish_reason is not None
        response.push(chunks.last(body, self.finish_reason, self.stop_reason))


@dataclass(slots=True, kw_only=True)
class ReadOptions:
    """What a `ReadStreamRun` adds. `prefix_text` (an echoed prompt) goes before the first text.

    legacy_function: calls are written as OpenAI's deprecated function_call."""

    tokenizer: Tokenizer
    interval_tokens: int = 1
    token_ids: bool = False
    running_usage: bool = False
    logprobs: LogprobSource | None = None
    prefix_text: str = ""
    prefix_entries: list[dict[str, Any]] | None = None
    suffix_text: str = ""
    hide_reasoning: bool = False
    legacy_function: bool = False


class ReadStreamRun(ChoiceRun):
    """Tokens are read through a PlanReader; a record holds what became visible since the last one."""

    __slots__ = ("_chunks", "_entries", "_held", "_ids", "_options", "_reader", "_response", "_since_record")

    def __init__(
        self,
        answer: AnswerEvents,
        request_id: RequestId,
        index: int,
        plan: OutputPlan | None,
        num_prompt_tokens: int,
        *,
        response: HotResponse,
        chunks: ChoiceChunks,
        options: ReadOptions,
    ) -> None:
        super().__init__(answer, request_id, index, plan, num_prompt_tokens)
        self._response = response
        self._chunks = chunks
        self._options = options
        self._reader = None if plan is None else PlanReader(options.tokenizer, plan)
        self._held: list[Delta] = [Delta("content", options.prefix_text)] if options.prefix_text else []
        self._entries: list[dict[str, Any]] = list(options.prefix_entries or ())
        self._ids: list[int] = []
        self._since_record = 0

    def token(self, token_id: int | None, end_ms: float) -> None:
        self._count(end_ms)
        if token_id is not None:
            self._take(token_id)
        self._since_record += 1
        if self._held and (self._since_record >= self._options.interval_tokens or self.generated == 1):
            self._emit(end_ms)

    def _render_last(self, token_id: int | None, end_ms: float) -> None:
        if self.generated == 0:
            self.answer.first_output()
        if token_id is not None:
            self._take(token_id)
        if self._reader is not None:
            self._held += self._reader.finish()
        if self._options.suffix_text:
            self._held.append(Delta("content", self._options.suffix_text))
        assert self.finish_reason is not None
        bodies = self._bodies()
        for body in bodies[:-1]:
            self._push(self._chunks.record(body, usage=self._usage()), end_ms)
        self._push(
            self._chunks.last(
                bodies[-1] if bodies else None,
                self.finish_reason,
                self.stop_reason,
                logprobs=self._logprobs(),
                token_ids=self._token_ids(),
                usage=self._usage(),
            ),
            end_ms,
        )

    def _take(self, token_id: int) -> None:
        options = self._options
        if self._reader is not None:
            self._held += self._reader.push(token_id)
        if options.logprobs is not None:
            self._entries.append(options.logprobs.entry(self.generated - 1, token_id))
        if options.token_ids:
            self._ids.append(token_id)

    def _emit(self, end_ms: float) -> None:
        bodies = self._bodies()
        for place, body in enumerate(bodies):
            last = place == len(bodies) - 1
            record = self._chunks.record(
                body,
                logprobs=self._logprobs() if last else b"null",
                token_ids=self._token_ids() if last else None,
                usage=self._usage(),
            )
            self._push(record, end_ms)
        self._since_record = 0

    def _push(self, record: bytes, end_ms: float) -> None:
        if self._response.plan_ms is None:
            self._response.plan_ms = end_ms
        self._response.push(record)

    def _bodies(self) -> list[bytes]:
        """What is held, as bodies: neighbours of one kind joined."""
        joined: list[Delta] = []
        for delta in self._held:
            if delta.kind == "reasoning" and self._options.hide_reasoning:
                continue
            if (
                joined
                and not delta.begins
                and (joined[-1].kind, joined[-1].index) == (delta.kind, delta.index)
            ):
                before = joined[-1]
                joined[-1] = Delta(
                    before.kind, before.text + delta.text, before.index, before.name, before.begins
                )
            else:
                joined.append(delta)
        self._held = []
        return [self._body(delta) for delta in joined]

    def _body(self, delta: Delta) -> bytes:
        fragment = json_fragment(delta.text)
        if delta.kind == "reasoning":
            return self._chunks.reasoning(fragment)
        if delta.kind == "tool_call" and self._options.legacy_function:
            return self._chunks.function_call(delta.name, fragment, first=delta.begins)
        if delta.kind == "tool_call" and self.plan is not None:
            ident = call_id(self.plan.seed, delta.index) if delta.begins else ""
            return self._chunks.tool_call(delta.index, ident, delta.name, fragment, first=delta.begins)
        return self._chunks.content(fragment)

    def _logprobs(self) -> bytes:
        source, entries = self._options.logprobs, self._entries
        if source is None or not entries:
            return b"null"
        self._entries = []
        return orjson.dumps(logprobs_object(source.shape, entries))

    def _token_ids(self) -> list[int] | None:
        if not self._options.token_ids:
            return None
        ids, self._ids = self._ids, []
        return ids

    def _usage(self) -> bytes | None:
        if not self._options.running_usage:
            return None
        prompt, completion = self.num_prompt_tokens, self.generated
        return b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}' % (
            prompt,
            completion,
            prompt + completion,
        )


def _rejected(num_prompt_tokens: int) -> RequestError:
    return RequestError(
        f"The engine rejected the request: its {num_prompt_tokens} prompt tokens and its output can never "
        "fit into the KV cache. Shorten the prompt, lower max_tokens or start the server with more blocks."
    )
