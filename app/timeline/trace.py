"""Chrome's trace format (chrome://tracing, Perfetto): passes, requests with their phases, load counters.

Pure: from facts to events, times in microseconds of engine time. The live route and `mocker replay` use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from app.timeline.spans import Phase

Event = dict[str, Any]

_PASSES = 0  # the thread that a process's passes are drawn on


def process_events(pid: int, name: str) -> list[Event]:
    """Names a process (a rank or a worker) and its passes."""
    return [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}},
        {"ph": "M", "name": "thread_name", "pid": pid, "tid": _PASSES, "args": {"name": "passes"}},
    ]


def pass_events(
    pid: int,
    start_us: int,
    end_us: int,
    *,
    running: int,
    waiting: int,
    used_blocks: int,
    prefill_tokens: int,
    output_tokens: int,
    preempted: int,
) -> Iterator[Event]:
    """One pass, and what the counters stood at after it."""
    kind = "prefill" if not output_tokens else "decode" if not prefill_tokens else "mixed"
    yield {
        "ph": "X",
        "name": f"{kind} pass",
        "cat": "pass",
        "pid": pid,
        "tid": _PASSES,
        "ts": start_us,
        "dur": end_us - start_us,
        "args": {"prefill_tokens": prefill_tokens, "output_tokens": output_tokens, "preempted": preempted},
    }
    counters = {"requests": {"running": running, "waiting": waiting}, "blocks": {"used": used_blocks}}
    for name, args in counters.items():
        yield {"ph": "C", "name": name, "pid": pid, "ts": end_us, "args": args}


def request_events(
    pid: int,
    request_id: str,
    spans: Iterable[tuple[Phase, int, int]],
    args: dict[str, Any],
) -> Iterator[Event]:
    """One request as a track of its own: itself, and its phases inside."""
    phases = list(spans)
    if not phases:
        return
    begin = {"cat": "request", "id": request_id, "pid": pid, "tid": 1}
    yield {"ph": "b", "name": request_id, "ts": phases[0][1], "args": args, **begin}
    for phase, start_us, end_us in phases:
        yield {"ph": "b", "name": phase.value, "ts": start_us, **begin}
        yield {"ph": "e", "name": phase.value, "ts": end_us, **begin}
    yield {"ph": "e", "name": request_id, "ts": phases[-1][2], **begin}


def document(events: list[Event]) -> Event:
    """The file as a whole."""
    return {"traceEvents": events, "displayTimeUnit": "ms"}
