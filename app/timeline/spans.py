"""The phases of one request, in whole microseconds, so that they add up to its whole time exactly.

Pure arithmetic: knows neither engine nor HTTP. Used by the live timeline and by the replay's trace.
"""

from __future__ import annotations

from enum import StrEnum

# Spans kept in detail; of a request that changes its phase more often only the sums go on.
SPANS_KEPT = 256


class Phase(StrEnum):
    """What a request is doing. PREFILL includes computing again after a preemption."""

    QUEUE = "queue"
    TRANSFER = "transfer"
    PREFILL = "prefill"
    DECODE = "decode"
    PREEMPTED = "preempted"


def to_us(ms: float) -> int:
    """Whole microseconds of engine time."""
    return round(ms * 1000.0)


class PhaseSpans:
    """Phases that follow each other without a gap from `start_us` to the end.

    `spans` has them in order; of those for which it has no room only the sums are kept.
    """

    __slots__ = ("_more_us", "end_us", "phase", "since_us", "spans", "start_us")

    def __init__(self, start_ms: float, phase: Phase = Phase.QUEUE) -> None:
        self.start_us = self.since_us = to_us(start_ms)
        self.end_us: int | None = None
        self.phase = phase
        self._more_us: dict[Phase, int] | None = None
        self.spans: list[tuple[Phase, int, int]] = []

    def enter(self, phase: Phase, at_ms: float) -> None:
        """The current phase ends and another begins. A time before the current phase counts as its start."""
        at_us = round(at_ms * 1000.0)
        since_us = self.since_us
        if at_us > since_us:
            if len(self.spans) < SPANS_KEPT:
                self.spans.append((self.phase, since_us, at_us))
            else:
                more = self._more_us = self._more_us or {}
                more[self.phase] = more.get(self.phase, 0) + at_us - since_us
            self.since_us = at_us
        self.phase = phase

    def finish(self, at_ms: float) -> None:
        """The request ended."""
        self.enter(self.phase, at_ms)
        self.end_us = self.since_us

    def parts_at(self, now_ms: float) -> dict[Phase, int]:
        """Every phase's sum so far; their total is the time from the start to `now_ms`, or to the end."""
        more = self._more_us or {}
        parts = {phase: more.get(phase, 0) for phase in Phase}
        for phase, start_us, end_us in self.spans:
            parts[phase] += end_us - start_us
        if self.end_us is None:
            parts[self.phase] += max(0, to_us(now_ms) - self.since_us)
        return parts

    def spans_at(self, now_ms: float) -> list[tuple[Phase, int, int]]:
        """The spans in order, the unfinished one included."""
        if self.end_us is not None:
            return list(self.spans)
        return [*self.spans, (self.phase, self.since_us, max(self.since_us, to_us(now_ms)))]
