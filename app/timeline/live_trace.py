"""The last seconds of a running server as a trace. Bounded by what the tracker keeps."""

from __future__ import annotations

from app.state import AppState
from app.timeline.record import RequestRecord
from app.timeline.spans import to_us
from app.timeline.trace import Event, document, pass_events, process_events, request_events
from app.timeline.tracker import PassFacts, tracker_of


def live_trace(state: AppState, seconds: float) -> Event:
    """Passes that ended, and requests that were alive, in the last `seconds`."""
    tracker = tracker_of(state)
    now_ms = tracker.now_ms()
    since_ms = now_ms - seconds * 1000.0
    since_us = to_us(since_ms)
    events: list[Event] = []
    for rank in range(state.engine.args.dp_size):
        events += process_events(rank, f"rank {rank}")
    for facts in tracker.passes:
        if facts.end_ms >= since_ms:
            events += _pass(facts)
    for record in (*tracker.ended.values(), *tracker.live.values()):
        if record.spans.end_us is None or record.spans.end_us >= since_us:
            events += _request(record, now_ms)
    return document(events)


def _pass(facts: PassFacts) -> list[Event]:
    return list(
        pass_events(
            facts.dp_rank,
            to_us(facts.start_ms),
            to_us(facts.end_ms),
            running=facts.running,
            waiting=facts.waiting,
            used_blocks=facts.used_blocks,
            prefill_tokens=facts.prefill_tokens,
            output_tokens=facts.output_tokens,
            preempted=facts.preempted,
        )
    )


def _request(record: RequestRecord, now_ms: float) -> list[Event]:
    args = {
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_tokens,
        "output_tokens": record.output_tokens,
        "preemptions": record.preemptions,
        "outcome": record.outcome.value,
    }
    return list(request_events(record.dp_rank or 0, record.request_id, record.spans.spans_at(now_ms), args))
