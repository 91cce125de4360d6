"""The last minute in steps of a second: TTFT, inter-token latency, throughput, preemptions, prefix hits.

A `RecordListener`; per pass and per request only. Seconds are those of the engine's clock.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from app.metrics.histogram import Histogram
from app.openai.choice import ChoiceRun
from app.timeline.record import RequestRecord
from app.timeline.tracker import PassFacts, RecordListener
from mocker_core.sched.output import EnginePassResult

SECONDS_KEPT = 60
# 0.05 ms to some minutes in steps of 15 %: as exact as a curve needs.
_BOUNDS_MS = tuple(0.05 * 1.15**step for step in range(110))


class Second:
    """What happened in one second."""

    __slots__ = (
        "at",
        "ended",
        "gaps_ms",
        "hits",
        "output_tokens",
        "preempted",
        "prefill_tokens",
        "queries",
        "ttft_ms",
    )

    def __init__(self, at: int) -> None:
        self.at = at
        self.ttft_ms = Histogram(_BOUNDS_MS)
        self.gaps_ms = Histogram(_BOUNDS_MS)
        self.output_tokens = 0
        self.prefill_tokens = 0
        self.preempted = 0
        self.ended = 0
        self.queries = 0
        self.hits = 0


class Curves(RecordListener):
    """Only seconds in which something happened are kept, at most as many as a minute has."""

    def __init__(self) -> None:
        # Points of seconds that nothing is added to any more.
        self._points: dict[int, dict[str, Any]] = {}
        self._newest = Second(0)
        self._seconds: deque[Second] = deque([self._newest], maxlen=SECONDS_KEPT + 1)
        self.ended_total = 0

    def on_pass(self, facts: PassFacts, result: EnginePassResult) -> None:
        second = self._second(facts.end_ms)
        second.output_tokens += facts.output_tokens
        second.prefill_tokens += facts.prefill_tokens
        second.preempted += facts.preempted
        for gap_ms, count in result.gaps:
            second.gaps_ms.observe(gap_ms, count)

    def on_first_admission(self, record: RequestRecord) -> None:
        assert record.admitted_us is not None
        second = self._second(record.admitted_us / 1000)
        second.queries += record.prompt_tokens
        second.hits += record.cached_tokens

    def on_first_token(self, record: RequestRecord) -> None:
        assert record.first_token_us is not None
        ttft_ms = (record.first_token_us - record.spans.start_us) / 1000
        self._second(record.first_token_us / 1000).ttft_ms.observe(ttft_ms)

    def on_end(self, record: RequestRecord, run: ChoiceRun) -> None:
        assert record.spans.end_us is not None
        self.ended_total += 1
        self._second(record.spans.end_us / 1000).ended += 1

    def points(self, now_ms: float) -> list[dict[str, Any]]:
        """One point per full second of the last minute, oldest first; the second under way is left out."""
        this = int(now_ms // 1000)
        first = max(0, this - SECONDS_KEPT)
        known = {second.at: second for second in self._seconds}
        points = {
            at: self._points.get(at) or _point(known.get(at) or Second(at)) for at in range(first, this)
        }
        self._points = {at: point for at, point in points.items() if at < this - 1}
        return [{"ago_s": this - at, **point} for at, point in points.items()]

    def hit_share(self, now_ms: float) -> float | None:
        """Of the prompt tokens admitted in the last minute, the share found in the cache."""
        since = int(now_ms // 1000) - SECONDS_KEPT
        recent = [second for second in self._seconds if second.at >= since]
        queries = sum(second.queries for second in recent)
        return sum(second.hits for second in recent) / queries if queries else None

    def _second(self, at_ms: float) -> Second:
        """The second of this time; a little earlier than the newest is possible with several ranks."""
        at = int(at_ms // 1000)
        newest = self._newest
        if at == newest.at:
            return newest
        seconds = self._seconds
        if at > newest.at:
            newest = self._newest = Second(at)
            seconds.append(newest)
            return newest
        return next((second for second in reversed(seconds) if second.at <= at), seconds[0])


def _point(second: Second) -> dict[str, Any]:
    return {
        "ttft_p50_ms": second.ttft_ms.quantile(0.5),
        "ttft_p99_ms": second.ttft_ms.quantile(0.99),
        "itl_p50_ms": second.gaps_ms.quantile(0.5),
        "itl_p99_ms": second.gaps_ms.quantile(0.99),
        "tokens_per_s": second.output_tokens,
        "prefill_tokens_per_s": second.prefill_tokens,
        "requests_per_s": second.ended,
        "preemptions": second.preempted,
    }
