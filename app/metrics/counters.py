"""What /metrics counts of each rank, filled once per pass and once per request, never per token.

A `RecordListener` of the tracker. Times are those of the engine's plan. Knows no names and no text format.
"""

from __future__ import annotations

from collections import Counter

from app.metrics.families import ITERATION_TOKENS, ITL_S, LATENCY_S, PARAMS_N, TTFT_S, token_buckets
from app.metrics.histogram import Histogram
from app.openai.answer import Answer, RunGroup
from app.openai.choice import ChoiceRun, Outcome
from app.timeline.record import RequestRecord
from app.timeline.tracker import PassFacts, RecordListener
from mocker_core.sched.output import EnginePassResult


class RankCounters:
    """One rank. `ended_tokens`: what ended requests generated; the live ones know theirs by themselves."""

    def __init__(self, max_model_len: int) -> None:
        tokens = token_buckets(max_model_len)
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.external_queries = 0
        self.external_hits = 0
        self.prompt_tokens = 0
        self.prompt_computed = 0
        self.prompt_cached_here = 0
        self.prompt_external = 0
        self.ended_tokens = 0
        self.clients_gone = 0
        self.finished: Counter[str] = Counter()
        self.iteration_tokens = Histogram(ITERATION_TOKENS)
        self.inter_token_s = Histogram(ITL_S)
        self.ttft_s = Histogram(TTFT_S)
        self.per_output_token_s = Histogram(ITL_S)
        self.e2e_s = Histogram(LATENCY_S)
        self.queue_s = Histogram(LATENCY_S)
        self.inference_s = Histogram(LATENCY_S)
        self.prefill_s = Histogram(LATENCY_S)
        self.decode_s = Histogram(LATENCY_S)
        self.request_prompt = Histogram(tokens)
        self.request_generated = Histogram(tokens)
        self.request_longest = Histogram(tokens)
        self.request_computed = Histogram(tokens)
        self.params_n = Histogram(PARAMS_N)
        self.params_max_tokens = Histogram(tokens)


class MetricsCounters(RecordListener):
    """All ranks. `prefix_caching`: whether look-ups are made at all."""

    def __init__(self, dp_size: int, max_model_len: int, *, prefix_caching: bool) -> None:
        self.ranks = [RankCounters(max_model_len) for _ in range(dp_size)]
        self._prefix_caching = prefix_caching

    def on_pass(self, facts: PassFacts, result: EnginePassResult) -> None:
        rank = self.ranks[facts.dp_rank]
        tokens = facts.prefill_tokens + facts.output_tokens
        if tokens:
            rank.iteration_tokens.observe(tokens)
        observe = rank.inter_token_s.observe
        for gap_ms, count in result.gaps:
            observe(gap_ms / 1000.0, count)

    def on_first_admission(self, record: RequestRecord) -> None:
        rank = self.ranks[record.dp_rank or 0]
        asked = record.prompt_tokens
        if self._prefix_caching:
            rank.prefix_queries += asked
            rank.prefix_hits += record.cached_tokens
        if record.handoff_id is not None:
            rank.external_queries += asked - record.cached_tokens
            rank.external_hits += record.external_tokens

    def on_first_token(self, record: RequestRecord) -> None:
        rank = self.ranks[record.dp_rank or 0]
        self._count_prompt(rank, record)
        assert record.first_token_us is not None
        rank.ttft_s.observe((record.first_token_us - record.spans.start_us) / 1e6)

    def on_end(self, record: RequestRecord, run: ChoiceRun) -> None:
        rank = self.ranks[record.dp_rank or 0]
        rank.ended_tokens += run.generated
        match run.outcome:
            case Outcome.COMPLETED:
                rank.finished["length" if run.finish_reason == "length" else "stop"] += 1
                self._count_completed(rank, record, run)
            case Outcome.CANCELLED:
                rank.finished["abort"] += 1
                if isinstance(run.answer, Answer) and run.answer.response.lost:
                    rank.clients_gone += 1
            case _:
                rank.finished["error"] += 1

    def _count_prompt(self, rank: RankCounters, record: RequestRecord) -> None:
        rank.prompt_tokens += record.prompt_tokens
        rank.prompt_computed += record.computed_prompt_tokens
        rank.prompt_cached_here += record.cached_tokens
        rank.prompt_external += record.external_tokens

    def _count_completed(self, rank: RankCounters, record: RequestRecord, run: ChoiceRun) -> None:
        start_us, end_us = record.spans.start_us, record.spans.end_us
        admitted_us, first_us = record.admitted_us, record.first_token_us
        assert end_us is not None
        if first_us is None:  # complete without a token
            self._count_prompt(rank, record)
            first_us = end_us
        if admitted_us is None:
            admitted_us = first_us
        generated = run.generated
        rank.e2e_s.observe((end_us - start_us) / 1e6)
        rank.queue_s.observe((admitted_us - start_us) / 1e6)
        rank.inference_s.observe((end_us - admitted_us) / 1e6)
        rank.prefill_s.observe((first_us - admitted_us) / 1e6)
        rank.decode_s.observe((end_us - first_us) / 1e6)
        rank.per_output_token_s.observe((end_us - first_us) / 1e6 / (generated - 1) if generated > 1 else 0.0)
        rank.request_prompt.observe(record.prompt_tokens)
        rank.request_generated.observe(generated)
        rank.request_computed.observe(record.computed_prompt_tokens)
        if record.max_tokens:
            rank.params_max_tokens.observe(record.max_tokens)
        self._count_choices(rank, run)

    def _count_choices(self, rank: RankCounters, run: ChoiceRun) -> None:
        """Once per prompt, with the last of its choices."""
        answer = run.answer
        if not isinstance(answer, RunGroup) or len(answer.runs) == 1:
            rank.params_n.observe(1)
            rank.request_longest.observe(run.generated)
            return
        choices = [other for other in answer.runs if other.prompt_index == run.prompt_index]
        if all(other.outcome is Outcome.COMPLETED for other in choices):
            rank.params_n.observe(len(choices))
            rank.request_longest.observe(max(other.generated for other in choices))
