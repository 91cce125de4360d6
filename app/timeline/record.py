"""`RequestRecord`: the timeline of one engine request, while it lives and after.

Owns its facts and their JSON. While the request lives its counts are read from its `ChoiceRun`; at the end
they are copied, so that an ended record keeps no plan and no answer alive. Must not know HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.openai.choice import ChoiceRun, Outcome
from app.timeline.spans import Phase, PhaseSpans, to_us
from mocker_core.request import HandoffId, RequestId

# Chunks and preemptions kept in detail; beyond that only their number goes on.
CHUNKS_KEPT = 256


class RequestRecord:
    """One request. `chunks`: (start_us, end_us, tokens) of its prefill; `preempted_us`: when it lost its KV.

    `prefilled_tokens` counts computed tokens, those computed again included; `computed_tokens` those since
    the latest admission. `generated_before` is what it
    had when it was (re)admitted: one more token ends the prefill phase.
    """

    __slots__ = (
        "admitted_us",
        "arrival_unix_s",
        "cached_tokens",
        "chunk_count",
        "chunks",
        "computed_tokens",
        "dp_rank",
        "external_tokens",
        "finish_reason",
        "first_token_us",
        "generated",
        "generated_before",
        "handoff_id",
        "max_tokens",
        "model",
        "outcome",
        "planned_tokens",
        "preempted_us",
        "preemptions",
        "prefilled_tokens",
        "prompt_tokens",
        "readmitted_us",
        "request_id",
        "run",
        "siblings",
        "spans",
    )

    def __init__(
        self, run: ChoiceRun, model: str, siblings: tuple[RequestId, ...], arrival_unix_s: float
    ) -> None:
        self.run: ChoiceRun | None = run
        self.request_id = run.request_id
        self.model = model
        self.siblings = siblings
        self.arrival_unix_s = arrival_unix_s
        self.spans = PhaseSpans(run.arrival_ms)
        self.prompt_tokens = run.num_prompt_tokens
        self.max_tokens = None if run.plan is None else run.plan.request.max_tokens
        self.planned_tokens = 0 if run.plan is None else len(run.plan)
        self.dp_rank = run.dp_rank
        self.cached_tokens = 0
        self.external_tokens = 0
        self.generated = 0
        self.generated_before = 0
        self.prefilled_tokens = 0
        self.computed_tokens = 0
        self.admitted_us: int | None = None  # the first time
        self.first_token_us: int | None = None
        self.chunk_count = 0
        self.chunks: list[tuple[int, int, int]] = []
        self.preemptions = 0
        self.preempted_us: list[int] = []
        self.readmitted_us: list[int] = []
        self.handoff_id: HandoffId | None = None
        self.outcome = Outcome.RUNNING
        self.finish_reason: str | None = None

    @property
    def running(self) -> bool:
        """In the batch now."""
        return self.run is not None and self.spans.phase in (Phase.PREFILL, Phase.DECODE)

    @property
    def output_tokens(self) -> int:
        return self.generated if self.run is None else self.run.generated

    @property
    def computed_prompt_tokens(self) -> int:
        """Prompt tokens that came neither from the cache nor from another server."""
        return self.prompt_tokens - self.cached_tokens - self.external_tokens

    def admit(self, at_ms: float, dp_rank: int, cached_tokens: int, *, again: bool) -> None:
        """A pass took it in. `again`: after a preemption, if need be one that no pass told of."""
        spans = self.spans
        if again:
            if spans.phase is not Phase.PREEMPTED:
                self.preempt(at_ms)
            if len(self.readmitted_us) < CHUNKS_KEPT:
                self.readmitted_us.append(to_us(at_ms))
        else:
            self.dp_rank = dp_rank
            self.admitted_us = to_us(at_ms)
            if not self.external_tokens:
                self.cached_tokens = cached_tokens
        self.computed_tokens = 0
        self.generated_before = self.output_tokens
        spans.enter(Phase.PREFILL, at_ms)

    def preempt(self, at_ms: float) -> None:
        self.preemptions += 1
        if len(self.preempted_us) < CHUNKS_KEPT:
            self.preempted_us.append(to_us(at_ms))
        self.spans.enter(Phase.PREEMPTED, at_ms)

    def add_chunk(self, start_ms: float, end_ms: float, tokens: int) -> None:
        self.chunk_count += 1
        self.prefilled_tokens += tokens
        self.computed_tokens += tokens
        if len(self.chunks) < CHUNKS_KEPT:
            self.chunks.append((to_us(start_ms), to_us(end_ms), tokens))

    def finish(self, at_ms: float) -> None:
        """Copy what its run knows, and let go of the run."""
        run = self.run
        assert run is not None, "a request ends once"
        self.generated = run.generated
        self.outcome = run.outcome
        self.finish_reason = run.finish_reason
        if run.first_token_ms is not None:
            self.first_token_us = to_us(run.first_token_ms)
        self.spans.finish(at_ms)
        self.run = None

    def summary(self, now_ms: float) -> dict[str, Any]:
        """One line of a list."""
        spans = self.spans
        end_us = spans.end_us
        running = self.run is not None
        return {
            "id": self.request_id,
            "model": self.model,
            "state": spans.phase.value if running else self.outcome.value,
            "finish_reason": self.finish_reason,
            "dp_rank": self.dp_rank,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "output_tokens": self.output_tokens,
            "max_tokens": self.max_tokens,
            "preemptions": self.preemptions,
            "arrival_ms": spans.start_us / 1000,
            "arrival_unix_s": self.arrival_unix_s,
            "ttft_ms": self._since_start(self.first_token_us),
            "e2e_ms": self._since_start(to_us(now_ms) if end_us is None else end_us),
        }

    def parts(self, now_ms: float) -> dict[str, float]:
        """Milliseconds of each phase, exact to the microsecond; their sum is e2e_ms."""
        return {phase.value: us / 1000 for phase, us in self.spans.parts_at(now_ms).items()}

    def as_json(self, now_ms: float, handoff: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The whole timeline; times in ms after the arrival, but for arrival_ms (engine time) itself."""
        start_us = self.spans.start_us
        return {
            **self.summary(now_ms),
            "siblings": list(self.siblings),
            "queued_ms": 0.0,
            "admitted_ms": self._since_start(self.admitted_us),
            "first_token_ms": self._since_start(self.first_token_us),
            "finished_ms": self._since_start(self.spans.end_us),
            "external_tokens": self.external_tokens,
            "prefilled_tokens": self.prefilled_tokens,
            "prefill_chunks": [
                {"start_ms": (begin - start_us) / 1000, "end_ms": (end - start_us) / 1000, "tokens": tokens}
                for begin, end, tokens in self.chunks
            ],
            "prefill_chunks_total": self.chunk_count,
            "preempted_at_ms": [(at_us - start_us) / 1000 for at_us in self.preempted_us],
            "readmitted_at_ms": [(at_us - start_us) / 1000 for at_us in self.readmitted_us],
            "parts_ms": self.parts(now_ms),
            "spans": [
                {
                    "phase": phase.value,
                    "start_ms": (begin - start_us) / 1000,
                    "end_ms": (end - start_us) / 1000,
                }
                for phase, begin, end in self.spans.spans_at(now_ms)
            ],
            "handoff": None if handoff is None else dict(handoff),
        }

    def _since_start(self, at_us: int | None) -> float | None:
        return None if at_us is None else (at_us - self.spans.start_us) / 1000
