"""One message: its run, whole or as a stream, and its usage."""

from __future__ import annotations

from typing import Any

from app.anthropic.errors import write_error
from app.anthropic.events import MessageEvents, content_block
from app.errors import ApiError
from app.json_body import encode_body
from app.openai.answer import JSON_HEADERS, Answer, reasoning_tokens
from app.openai.blocks import BlockWriter, read_blocks
from app.openai.event_run import EventRun, Follower
from app.state import AppState
from app.stream_response import HotResponse

_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}


class MessageAnswer(Answer):
    """Give it its run with `start` before the submission."""

    def __init__(
        self,
        state: AppState,
        response: HotResponse,
        message_id: str,
        model: str,
        *,
        stream: bool,
        hide_thinking: bool,
    ) -> None:
        super().__init__(state, response)
        self._message_id = message_id
        self.model = model
        self._stream = stream
        self._hide_thinking = hide_thinking
        self._events = MessageEvents(message_id, hide_thinking=hide_thinking)
        self._run: EventRun

    def start(self, run: EventRun) -> None:
        self._run = run
        if not self._stream:
            return
        assert run.plan is not None
        self.response.streaming = True
        writer = BlockWriter(
            self.state.tokenizer,
            self.state.fragments,
            run.plan,
            self._events,
            interval_tokens=self.state.settings.stream_interval,
        )
        run.followers.append(Follower(self.response, writer))

    def first_output(self) -> None:
        if self._stream:
            self.response.push(self._events.start(self._body([], None, None)))

    def _complete(self) -> None:
        run = self._run
        if run.finish_reason == "abort":
            self._fail(ApiError(503, "The engine was put to sleep before the message was complete."))
            return
        reason, sequence = self._stop()
        if self._stream:
            for record in self._events.end(reason, sequence, self._usage()):
                self.response.push(record)
            self.response.finish(b"")
            return
        assert run.plan is not None
        blocks = read_blocks(self.state.tokenizer, run.plan, run.generated, complete=not run.cut)
        content = [
            content_block(self._message_id, block, hide_thinking=self._hide_thinking) for block in blocks
        ]
        self.response.respond(200, JSON_HEADERS, encode_body(self._body(content, reason, sequence)))

    def _fail(self, refusal: ApiError) -> None:
        write_error(self.response, refusal, self.state.profile)

    def _stop(self) -> tuple[str, str | None]:
        run = self._run
        if isinstance(run.stop_reason, str):
            return "stop_sequence", run.stop_reason
        return _STOP_REASONS.get(run.finish_reason or "stop", "end_turn"), None

    def _body(
        self, content: list[dict[str, Any]], reason: str | None, sequence: str | None
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "id": self._message_id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": self._usage(),
        }
        params = self._run.kv_transfer_params
        return body if params is None else {**body, "kv_transfer_params": params}

    def _usage(self) -> dict[str, Any]:
        """As Anthropic counts: all of the prompt is input, cache reads and cache writes together."""
        run = self._run
        cached = run.cached_tokens if self.state.settings.enable_prompt_tokens_details else 0
        usage: dict[str, Any] = {
            "input_tokens": run.num_prompt_tokens - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": run.generated,
        }
        thinking = reasoning_tokens(run)
        return {**usage, "output_tokens_details": {"thinking_tokens": thinking}} if thinking else usage
