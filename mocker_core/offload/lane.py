"""One link between two tiers, shared equally by its active transfers (processor sharing).

Owns the transfers on the link and when each ends. Knows bytes and milliseconds, never blocks or
tiers. State changes only at starts, ends and cancels, so that it does not matter how often time
is looked at in between: live and offline runs get the same instants.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

SLACK_MS = 1e-9
"""An end this close after an instant counts as due at it."""

Job = TypeVar("Job")


class Transfer(Generic[Job]):
    """One transfer under way. `job` is what its owner recognises it by."""

    __slots__ = ("ends_at_share", "job", "size_bytes", "under_way")

    def __init__(self, job: Job, size_bytes: int, ends_at_share: float) -> None:
        self.job = job
        self.size_bytes = size_bytes
        self.ends_at_share = ends_at_share
        self.under_way = True


class Lane(Generic[Job]):
    """A link of `bandwidth_gbps` GB/s (1e9 B/s); 0 or less = transfers end in the instant they start.

    Equal sharing means that every active transfer has moved the same number of bytes since it became
    active. So one running sum, the `share` of a transfer that was there all the time, tells every end:
    a transfer ends when the share has grown by its size. Each operation costs O(log n).
    """

    def __init__(self, bandwidth_gbps: float) -> None:
        self._instant = bandwidth_gbps <= 0
        self._bytes_per_ms = 1.0 if self._instant else bandwidth_gbps * 1e6
        self._share_bytes = 0.0
        self._share_at_ms = 0.0
        self._order = 0
        self._heap: list[tuple[float, int, Transfer[Job]]] = []
        self.active = 0
        self.bytes_total = 0

    def start(self, job: Job, size_bytes: int, now_ms: float) -> Transfer[Job]:
        """Begin a transfer; whatever is due by `now_ms` must have been taken with `tick` before."""
        self._move_to(now_ms)
        ends_at_share = self._share_bytes + (0 if self._instant else size_bytes)
        transfer = Transfer(job, size_bytes, ends_at_share)
        heapq.heappush(self._heap, (ends_at_share, self._order, transfer))
        self._order += 1
        self.active += 1
        return transfer

    def cancel(self, transfer: Transfer[Job], now_ms: float) -> None:
        """Stop a transfer; the others share what it leaves. One that has ended already is left alone."""
        if transfer.under_way:
            self._move_to(now_ms)
            self._close(transfer)

    def tick(self, now_ms: float) -> list[Transfer[Job]]:
        """Take the transfers that end by `now_ms`, in the order they end (ties as started)."""
        ended: list[Transfer[Job]] = []
        deadline_ms = self.next_deadline_ms()
        while deadline_ms is not None and deadline_ms <= now_ms + SLACK_MS:
            ends_at_share, _, transfer = heapq.heappop(self._heap)
            self._share_at_ms = deadline_ms
            self._share_bytes = ends_at_share
            self._close(transfer)
            self.bytes_total += transfer.size_bytes
            ended.append(transfer)
            deadline_ms = self.next_deadline_ms()
        return ended

    def next_deadline_ms(self) -> float | None:
        """When the next transfer ends if none starts or is cancelled before; None if none is active."""
        heap = self._heap
        while heap and not heap[0][2].under_way:
            heapq.heappop(heap)
        if not heap:
            return None
        left_bytes = max(0.0, heap[0][0] - self._share_bytes)
        return self._share_at_ms + left_bytes * self.active / self._bytes_per_ms

    def clear(self) -> None:
        """Drop every transfer."""
        for _, _, transfer in self._heap:
            transfer.under_way = False
        self._heap.clear()
        self.active = 0
        self._share_bytes = 0.0

    def _close(self, transfer: Transfer[Job]) -> None:
        transfer.under_way = False
        self.active -= 1
        if not self.active:
            # An idle link may forget what it moved; the sum stays small and so exact.
            self._heap.clear()
            self._share_bytes = 0.0

    def _move_to(self, now_ms: float) -> None:
        """Let the active transfers have their share up to `now_ms`; time never goes back."""
        if self.active and now_ms > self._share_at_ms:
            moved = (now_ms - self._share_at_ms) * self._bytes_per_ms / self.active
            self._share_bytes += moved
        self._share_at_ms = max(self._share_at_ms, now_ms)
