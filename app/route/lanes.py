"""What each routed request is doing now: one lane per request, for `/admin/lanes` and the demo's picture.

Owns the lanes and the clock that stamps them; knows nothing of HTTP.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class LaneState(StrEnum):
    PREFILL = "prefill"
    TRANSFER = "transfer"
    DECODE = "decode"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class Lane:
    """One request on its way. Times in ms since it came in; None where it did not get so far."""

    request_id: str
    started_ms: float
    state: LaneState = LaneState.PREFILL
    prefill: str | None = None
    decode: str | None = None
    prefill_ms: float | None = None
    first_byte_ms: float | None = None
    end_ms: float | None = None
    events: int = 0
    error: str | None = None


class LaneBook:
    """All lanes that are open, and the latest `keep` that ended."""

    def __init__(self, keep: int = 64, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._open: dict[int, Lane] = {}
        self._ended: deque[Lane] = deque(maxlen=keep)
        self._counts = dict.fromkeys((LaneState.DONE, LaneState.FAILED, LaneState.CANCELLED), 0)

    def open(self, request_id: str) -> Lane:
        lane = Lane(request_id, self._now_s() * 1000)
        self._open[id(lane)] = lane
        return lane

    def elapsed_ms(self, lane: Lane) -> float:
        return self._now_s() * 1000 - lane.started_ms

    def close(self, lane: Lane, state: LaneState, error: str | None = None) -> None:
        """End a lane; a second close is ignored."""
        if self._open.pop(id(lane), None) is None:
            return
        lane.state, lane.error, lane.end_ms = state, error, self.elapsed_ms(lane)
        self._ended.append(lane)
        self._counts[state] += 1

    def as_json(self) -> dict[str, Any]:
        """Open lanes first (oldest first), then the ended ones, latest first."""
        shown = [*self._open.values(), *reversed(self._ended)]
        return {
            "open": len(self._open),
            "ended": {str(state): count for state, count in self._counts.items()},
            "lanes": [self._shown(lane) for lane in shown],
        }

    def _shown(self, lane: Lane) -> dict[str, Any]:
        return {
            "request_id": lane.request_id,
            "state": lane.state,
            "prefill": lane.prefill,
            "decode": lane.decode,
            "prefill_ms": lane.prefill_ms,
            "first_byte_ms": lane.first_byte_ms,
            "elapsed_ms": lane.end_ms if lane.end_ms is not None else self.elapsed_ms(lane),
            "events": lane.events,
            "error": lane.error,
        }
