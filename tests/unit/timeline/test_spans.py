from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from app.timeline.spans import SPANS_KEPT, Phase, PhaseSpans, to_us

steps = st.lists(st.tuples(st.sampled_from(list(Phase)), st.floats(0, 50)), max_size=40)


@given(start_ms=st.floats(0, 1e9), moves=steps, last_ms=st.floats(0, 50))
def test_parts_add_up_to_the_whole_time_exactly(
    start_ms: float, moves: list[tuple[Phase, float]], last_ms: float
) -> None:
    spans = PhaseSpans(start_ms)
    now_ms = start_ms
    for phase, step_ms in moves:
        now_ms += step_ms
        spans.enter(phase, now_ms)
        assert sum(spans.parts_at(now_ms).values()) == to_us(now_ms) - spans.start_us
    spans.finish(now_ms + last_ms)
    assert spans.end_us == to_us(now_ms + last_ms)
    assert sum(spans.parts_at(0.0).values()) == spans.end_us - spans.start_us
    kept = spans.spans_at(0.0)
    assert sum(end - start for _, start, end in kept) == spans.end_us - spans.start_us
    assert all(before[2] == after[1] for before, after in pairwise(kept))


def test_a_time_before_the_phase_began_counts_as_its_start() -> None:
    spans = PhaseSpans(10.0)
    spans.enter(Phase.PREFILL, 12.0)
    spans.finish(11.0)
    assert spans.end_us == 12_000
    assert spans.parts_at(99.0)[Phase.QUEUE] == 2_000


def test_many_changes_keep_the_sums_but_not_every_span() -> None:
    spans = PhaseSpans(0.0)
    for at in range(1, 1001):
        spans.enter(Phase.DECODE if at % 2 else Phase.PREEMPTED, float(at))
    assert len(spans.spans) == SPANS_KEPT
    assert sum(spans.parts_at(1000.0).values()) == 1_000_000
