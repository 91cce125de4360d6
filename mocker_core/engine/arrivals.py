"""When which trace row is dispatched: by timestamp, after its session's previous turn, or by free places."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from mocker_core.errors import ArgumentError
from mocker_core.trace import TraceRow

SLACK_MS = 1e-9
"""Comparisons of instants on the virtual clock allow this much."""


class Arrivals:
    """Open loop: arrival = timestamp. Closed loop (`concurrency`): when fewer than that many are in flight.

    Rows of one session after its first arrive at the end of the previous turn plus their delay.
    Time zero is the smallest timestamp; ties go in file order.
    """

    def __init__(self, rows: Sequence[TraceRow], concurrency: int | None = None) -> None:
        if concurrency is not None and concurrency < 1:
            raise ArgumentError(f"concurrency is {concurrency}; it must be >= 1.")
        self._rows = rows
        self._concurrency = concurrency
        self._in_flight = 0
        self._due: list[tuple[float, int]] = []
        self._next_turn: dict[int, int] = {}
        last_of_session: dict[str, int] = {}
        first: list[TraceRow] = []
        for row in rows:
            session = row.session_id
            if session is not None and session in last_of_session:
                self._next_turn[last_of_session[session]] = row.trace_index
            else:
                first.append(row)
            if session is not None:
                last_of_session[session] = row.trace_index
        start_ms = min((row.timestamp_ms for row in first), default=0.0)
        for row in first:
            due_ms = 0.0 if concurrency is not None else row.timestamp_ms - start_ms
            heapq.heappush(self._due, (due_ms, row.trace_index))

    def take(self, now_ms: float) -> list[tuple[float, int]]:
        """(arrival_ms, trace index) of what is due at `now_ms`, in order."""
        taken: list[tuple[float, int]] = []
        while self._due and self._due[0][0] <= now_ms + SLACK_MS and self._has_place():
            arrival_ms, index = heapq.heappop(self._due)
            self._in_flight += 1
            taken.append((arrival_ms if self._concurrency is None else now_ms, index))
        return taken

    def ended(self, index: int, now_ms: float) -> None:
        """A dispatched row ended: its place is free, and its session's next turn follows."""
        self._in_flight -= 1
        follower = self._next_turn.get(index)
        if follower is not None:
            heapq.heappush(self._due, (now_ms + self._rows[follower].delay_ms, follower))

    def next_ms(self) -> float | None:
        """The next instant at which `take` gives something, as far as it is known."""
        return self._due[0][0] if self._due and self._has_place() else None

    def _has_place(self) -> bool:
        return self._concurrency is None or self._in_flight < self._concurrency
