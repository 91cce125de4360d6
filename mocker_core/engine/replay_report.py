"""Per-request rows and the summary of a replay (statistics as engine.md section 10 defines them)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

QUANTILES = (("p50", 0.50), ("p90", 0.90), ("p95", 0.95), ("p99", 0.99))


@dataclass(slots=True)
class ReplayRow:
    """One request of a replay. Times in virtual ms since the trace's start; None where there is none."""

    trace_index: int
    input_length: int
    arrival_ms: float | None = None
    first_admit_ms: float | None = None
    first_token_ms: float | None = None
    last_token_ms: float | None = None
    output_length: int = 0
    reused_input_tokens: int | None = None
    preemptions: int = 0
    status: str | None = None
    prefill_admit_ms: float | None = None
    source_held_ms: float | None = None
    destination_reserved_ms: float | None = None
    destination_activated_ms: float | None = None
    source_released_ms: float | None = None
    decode_admit_ms: float | None = None

    @property
    def ttft_ms(self) -> float | None:
        return _span(self.arrival_ms, self.first_token_ms)

    @property
    def e2e_ms(self) -> float | None:
        return _span(self.arrival_ms, self.last_token_ms)

    @property
    def mean_itl_ms(self) -> float | None:
        span = _span(self.first_token_ms, self.last_token_ms)
        return None if span is None or self.output_length < 2 else span / (self.output_length - 1)

    def as_dict(self, *, disaggregated: bool) -> dict[str, float | int | str | None]:
        """Every key of the per-request output, null where there is nothing."""
        names = ROW_KEYS + (DISAGGREGATED_ROW_KEYS if disaggregated else ())
        return {name: getattr(self, name) for name in names}


ROW_KEYS = (
    "trace_index",
    "arrival_ms",
    "first_admit_ms",
    "first_token_ms",
    "last_token_ms",
    "ttft_ms",
    "e2e_ms",
    "mean_itl_ms",
    "input_length",
    "output_length",
    "reused_input_tokens",
    "preemptions",
    "status",
)
DISAGGREGATED_ROW_KEYS = (
    "prefill_admit_ms",
    "source_held_ms",
    "destination_reserved_ms",
    "destination_activated_ms",
    "source_released_ms",
    "decode_admit_ms",
)


def _span(start_ms: float | None, end_ms: float | None) -> float | None:
    return None if start_ms is None or end_ms is None else end_ms - start_ms


def summarize(
    rows: Sequence[ReplayRow], gaps: Sequence[tuple[float, int]], duration_ms: float, wall_s: float
) -> dict[str, float | int | None]:
    """The flat report. `gaps` are inter-token gaps as (gap_ms, how many). Rejected rows count in counts
    only.
    """
    completed = [row for row in rows if row.status == "completed"]
    input_tokens = sum(row.input_length for row in completed)
    output_tokens = sum(row.output_length for row in completed)
    seconds = duration_ms / 1000.0
    report: dict[str, float | int | None] = {
        "completed": len(completed),
        "rejected": sum(1 for row in rows if row.status == "rejected"),
        "duration_ms": duration_ms,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "output_tokens_per_s": output_tokens / seconds if seconds else None,
        "requests_per_s": len(completed) / seconds if seconds else None,
    }
    report |= _distribution("ttft", [row.ttft_ms for row in completed])
    report |= _itl(completed, gaps)
    report |= _distribution("e2e", [row.e2e_ms for row in completed])
    reused = sum(row.reused_input_tokens or 0 for row in completed)
    report["prefix_reuse_ratio"] = reused / input_tokens if input_tokens else None
    report["preemptions"] = sum(row.preemptions for row in rows)
    report["wall_s"] = wall_s
    return report


def _distribution(name: str, values: Sequence[float | None]) -> dict[str, float | int | None]:
    known = sorted(value for value in values if value is not None)
    count = len(known)
    report: dict[str, float | int | None] = {f"mean_{name}_ms": sum(known) / count if count else None}
    for label, quantile in QUANTILES:
        at = min(count - 1, math.floor(count * quantile))
        report[f"{label}_{name}_ms"] = known[at] if count else None
    return report


def _itl(rows: Sequence[ReplayRow], gaps: Sequence[tuple[float, int]]) -> dict[str, float | int | None]:
    """The mean over rows' own spans; percentiles over single gaps."""
    tokens = sum(row.output_length - 1 for row in rows if row.output_length > 1)
    spans = (_span(row.first_token_ms, row.last_token_ms) for row in rows if row.output_length > 1)
    report: dict[str, float | int | None] = {
        "mean_itl_ms": sum(span for span in spans if span is not None) / tokens if tokens else None
    }
    ordered = sorted(gaps)
    count = sum(weight for _, weight in ordered)
    for label, quantile in QUANTILES:
        at = min(count - 1, math.floor(count * quantile))
        report[f"{label}_itl_ms"] = _weighted(ordered, at) if count else None
    return report


def _weighted(ordered: Sequence[tuple[float, int]], at: int) -> float:
    seen = 0
    for gap_ms, weight in ordered:
        seen += weight
        if at < seen:
            return gap_ms
    raise AssertionError("an order statistic lies past the last gap")
