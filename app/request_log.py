"""One log line for each engine request, at its end: what it asked, what it got and how long it took.

A `RequestObserver`. Quiet under load: beyond some lines a second only the number of further requests is
logged. Must not know HTTP. Prompts appear only if asked for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from app.openai.choice import ChoiceRun, Outcome
from app.openai.submit import RequestObserver
from app.text.tokenizer import Tokenizer

logger = logging.getLogger("mocker.requests")

_LONGEST_PROMPT_CHARS = 2000
LINES_PER_S = 20


class RequestLog(RequestObserver):
    """`tokenizer` is given only if prompts are to be logged. `clock_s` counts seconds from anywhere."""

    def __init__(
        self, tokenizer: Tokenizer | None = None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._tokenizer = tokenizer
        self._clock_s = clock_s
        self._second = 0
        self._lines = 0
        self._unlogged = 0

    def on_request_start(self, run: ChoiceRun) -> None: ...

    def on_request_end(self, run: ChoiceRun) -> None:
        if not logger.isEnabledFor(logging.INFO) or not self._has_room():
            return
        facts: dict[str, Any] = {
            "request_id": run.request_id,
            "outcome": run.finish_reason if run.outcome is Outcome.COMPLETED else run.outcome.value,
            "dp_rank": run.dp_rank,
            "prompt_tokens": run.num_prompt_tokens,
            "cached_tokens": run.cached_tokens,
            "output_tokens": run.generated,
            "preemptions": run.preemptions,
            "queue_ms": _since(run.arrival_ms, run.admitted_ms),
            "ttft_ms": _since(run.arrival_ms, run.first_token_ms),
            "e2e_ms": _since(run.arrival_ms, run.last_token_ms),
        }
        if self._tokenizer is not None and run.plan is not None:
            text = self._tokenizer.decode(run.plan.request.prompt_token_ids)
            facts["prompt"] = text[:_LONGEST_PROMPT_CHARS]
        logger.info("%s", _in_words(facts), extra={"fields": facts})

    def _has_room(self) -> bool:
        """Whether this second may have a further line; says what the second before left out."""
        second = int(self._clock_s())
        if second != self._second:
            if self._unlogged:
                logger.info(
                    "%d further requests ended; at most %d a second are logged.", self._unlogged, LINES_PER_S
                )
            self._second, self._lines, self._unlogged = second, 0, 0
        if self._lines == LINES_PER_S:
            self._unlogged += 1
            return False
        self._lines += 1
        return True


def _since(start_ms: float, end_ms: float | None) -> float | None:
    return None if end_ms is None else round(end_ms - start_ms, 3)


def _in_words(facts: dict[str, Any]) -> str:
    shown = {name: "-" if value is None else value for name, value in facts.items()}
    words = (
        "{request_id} {outcome}: prompt {prompt_tokens} (cached {cached_tokens}), output {output_tokens} "
        "tokens, queued {queue_ms}, first token {ttft_ms}, all {e2e_ms} ms"
    ).format_map(shown)
    if facts["preemptions"]:
        words += f", preempted {facts['preemptions']} times"
    return words + (f", prompt {facts['prompt']!r}" if "prompt" in facts else "")
