"""The waiting queue of one rank: put-back requests first, then by (-priority, order of acceptance)."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from mocker_core.metrics import LengthStats
from mocker_core.sched.state import SchedRequest


class WaitingQueue:
    """Priority FCFS with a front line. Removal is lazy in the heap, so every operation is O(log n) or
    better.
    """

    def __init__(self) -> None:
        self._front: deque[SchedRequest] = deque()
        self._heap: list[tuple[int, int, SchedRequest]] = []
        self._members: dict[SchedRequest, bool] = {}
        self._in_place: dict[SchedRequest, None] = {}
        self._lengths = {False: [0, 0, 0], True: [0, 0, 0]}

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, request: SchedRequest) -> bool:
        return request in self._members

    def add(self, request: SchedRequest) -> None:
        """Queue by priority and order of acceptance."""
        self._enter(request, front=False)
        heapq.heappush(self._heap, (-request.priority, request.arrival_order, request))
        if request.kv_in_place:
            self._in_place[request] = None

    def put_front(self, request: SchedRequest) -> None:
        """Preempted or swapped in: before everyone, whatever its priority."""
        self._enter(request, front=True)
        self._front.appendleft(request)

    def head(self) -> SchedRequest | None:
        if self._front:
            return self._front[0]
        while self._heap:
            request = self._heap[0][2]
            if self._members.get(request) is False:
                return request
            heapq.heappop(self._heap)
        return None

    def first_in_place(self) -> SchedRequest | None:
        """The first waiting request whose KV is in place."""
        if not self._in_place:
            return None
        return min(self._in_place, key=lambda request: (-request.priority, request.arrival_order))

    def remove(self, request: SchedRequest) -> None:
        front = self._members.pop(request)
        if front:
            self._front.remove(request)
        self._in_place.pop(request, None)
        self._count(request, front, -1)

    def __iter__(self) -> Iterator[SchedRequest]:
        """In queue order; for reports, not for scheduling."""
        yield from self._front
        yield from (item[2] for item in sorted(self._heap) if self._members.get(item[2]) is False)

    def lengths(self) -> tuple[LengthStats, LengthStats]:
        """Queued prefill (fresh) and queued decode (preempted or swapped-in) lengths in tokens."""
        return length_stats(*self._lengths[False]), length_stats(*self._lengths[True])

    def _enter(self, request: SchedRequest, *, front: bool) -> None:
        assert request not in self._members, f"{request.request_id} is queued twice"
        self._members[request] = front
        self._count(request, front, 1)

    def _count(self, request: SchedRequest, front: bool, sign: int) -> None:
        sums = self._lengths[front]
        tokens = request.num_tokens
        sums[0] += sign
        sums[1] += sign * tokens
        sums[2] += sign * tokens * tokens


_NO_LENGTHS = LengthStats()


def length_stats(count: int, total: int, squares: int) -> LengthStats:
    """Count, sum and population variance from running sums."""
    if not count:
        return _NO_LENGTHS
    mean = total / count
    return LengthStats(count, total, max(0.0, squares / count - mean * mean))
