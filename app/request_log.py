"""One log line for each engine request, at its end: what it asked, what it got and how long it took.

A `RequestObserver`. Must not know HTTP. Prompts appear only if asked for.
"""

from __future__ import annotations

import logging

from app.openai.choice import ChoiceRun, Outcome
from app.openai.submit import RequestObserver
from app.text.tokenizer import Tokenizer

logger = logging.getLogger("mocker.requests")

_LONGEST_PROMPT_CHARS = 2000


class RequestLog(RequestObserver):
    """`tokenizer` is given only if prompts are to be logged."""

    def __init__(self, tokenizer: Tokenizer | None = None) -> None:
        self._tokenizer = tokenizer

    def on_request_start(self, run: ChoiceRun) -> None: ...

    def on_request_end(self, run: ChoiceRun) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        ending = run.finish_reason if run.outcome is Outcome.COMPLETED else run.outcome.value
        logger.info(
            "%s %s: prompt %d (cached %d), output %d tokens, queued %s, first token %s, all %s ms%s",
            run.request_id,
            ending,
            run.num_prompt_tokens,
            run.cached_tokens,
            run.generated,
            _since(run.arrival_ms, run.admitted_ms),
            _since(run.arrival_ms, run.first_token_ms),
            _since(run.arrival_ms, run.last_token_ms),
            self._prompt(run),
        )

    def _prompt(self, run: ChoiceRun) -> str:
        if self._tokenizer is None or run.plan is None:
            return ""
        text = self._tokenizer.decode(run.plan.request.prompt_token_ids)
        return f", prompt {text[:_LONGEST_PROMPT_CHARS]!r}"


def _since(start_ms: float, end_ms: float | None) -> str:
    return "-" if end_ms is None else f"{end_ms - start_ms:.2f}"
