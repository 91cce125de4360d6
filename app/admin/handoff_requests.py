"""Requests that come with handoff commands: from JSON to the engine's terms, and where their tokens go.

Must not know the routes. Such a request has no HTTP answer: what happens to it is noted in its record.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from app.errors import bad_request
from app.openai.completion.prompts import parse_prompts
from app.openai.serving import plan_limit, tokenised
from app.pd.book import HandoffBook, HandoffRecord
from app.state import AppState
from app.text.chat_template import ChatTemplateError
from app.text.plan import PlanRequest
from mocker_core.events import OutputSignal
from mocker_core.request import DirectRequest, RequestId

_DEFAULT_MAX_TOKENS = 16


class HandoffRequest(BaseModel):
    """One of prompt, messages and prompt_token_ids, and limits as for completions."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"examples": [{"prompt": "Hi", "max_tokens": 8}]}
    )

    prompt: str | list[int] | None = Field(None, description="A text or token ids.")
    messages: list[dict[str, Any]] | None = Field(None, description="As for chat completions.")
    prompt_token_ids: list[int] | None = None
    max_tokens: int = Field(_DEFAULT_MAX_TOKENS, ge=1)
    min_tokens: int = Field(0, ge=0)
    ignore_eos: bool = False
    seed: int | None = None
    priority: int = Field(0, description="The lowest number goes first, as in vLLM.")


async def direct_request(state: AppState, request: HandoffRequest, request_id: str) -> DirectRequest:
    """Tokenise and plan. Raises ApiError 400 for no prompt, several, or one that is too long."""
    given = [
        name for name in ("prompt", "messages", "prompt_token_ids") if getattr(request, name) is not None
    ]
    if len(given) != 1:
        raise bad_request(
            f"request has {' and '.join(given) or 'no prompt'}; it needs exactly one of prompt, messages and "
            "prompt_token_ids.",
            "request",
        )
    tokens = await _tokens(state, request)
    param = "messages" if request.messages is not None else "prompt"
    most = plan_limit(state, len(tokens), request.max_tokens, param)
    plan = state.planner.plan(
        PlanRequest(
            request_id=request_id,
            prompt_token_ids=tokens,
            max_tokens=most,
            min_tokens=min(request.min_tokens, most),
            ignore_eos=request.ignore_eos,
            seed=request.seed,
        )
    )
    return DirectRequest(
        request_id=RequestId(request_id),
        tokens=tokens,
        max_output_tokens=len(plan),
        output_token_ids=plan,
        priority=-request.priority,
        arrival_timestamp_ms=state.engine.now_ms(),
    )


async def _tokens(state: AppState, request: HandoffRequest) -> list[int]:
    messages = request.messages
    if messages is not None:
        try:
            return await tokenised(lambda: state.template.encode(messages), sum(map(len, map(str, messages))))
        except ChatTemplateError as error:
            raise bad_request(str(error), f"request.{error.param}") from None
    prompts = parse_prompts(request.prompt_token_ids if request.prompt is None else request.prompt)
    token_ids, text = prompts[0].token_ids, prompts[0].text or ""
    if token_ids is not None:
        return token_ids
    return await tokenised(lambda: state.tokenizer.encode(text), len(text))


class RecordSink:
    """The dispatcher's sink of a request without an HTTP answer. `ends_record`: its end is the handoff's."""

    def __init__(self, book: HandoffBook, record: HandoffRecord, *, ends_record: bool) -> None:
        self._book = book
        self._record = record
        self._ends_record = ends_record
        self._tokens = 0

    def admitted(self, reused_input_tokens: int, readmission: bool, dp_rank: int, now_ms: float) -> None:
        self._book.note(self._record, "admitted")

    def preempted(self) -> None:
        self._book.note(self._record, "preempted")

    def token(self, token_id: int | None, end_ms: float) -> None:
        self._tokens += 1
        if self._tokens == 1:
            self._book.note(self._record, "first token")

    def end(self, signal: OutputSignal, end_ms: float) -> None:
        if signal.hidden:
            self._book.note(self._record, "prefilled")
            return
        if not signal.rejected:
            self.token(signal.token_id, end_ms)
        outcome = "rejected" if signal.rejected else "completed"
        self._book.note(self._record, f"{outcome} after {self._tokens} tokens")
        if self._ends_record or signal.rejected:
            self._book.close(self._record, outcome)

    def fail(self, error: Exception) -> None:
        if self._record.ended_ms is not None:
            return
        self._book.note(self._record, str(error))
        if self._ends_record:
            self._book.close(self._record, "failed", str(error))
