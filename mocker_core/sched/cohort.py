"""The steady decode batch: requests that sampled at the last pass end and take one token in each pass.

A pass advances all of them by counting one step; only block boundaries and ends are looked at,
through calendars keyed by the step. This is what makes a pass cost what changes, not what runs.
"""

from __future__ import annotations

from mocker_core.sched.state import SchedRequest


class DecodeCohort:
    """Members in running order. Sums are over members' L (prompt + generated tokens)."""

    __slots__ = (
        "_block_size",
        "_blocks_due",
        "_ends_due",
        "last_end_ms",
        "members",
        "steps",
        "sum_squares",
        "sum_tokens",
    )

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.members: dict[SchedRequest, None] = {}
        self.steps = 0
        self.sum_tokens = 0
        self.sum_squares = 0
        self.last_end_ms = 0.0
        # Inner dicts serve as ordered sets: a request that leaves and joins again may be due twice at one
        # step.
        self._blocks_due: dict[int, dict[SchedRequest, None]] = {}
        self._ends_due: dict[int, dict[SchedRequest, None]] = {}

    def __len__(self) -> int:
        return len(self.members)

    def join(self, request: SchedRequest) -> None:
        """Add at the end. The request has sampled just now: computed == L - 1, not complete."""
        tokens = request.num_tokens
        request.generated -= self.steps
        request.cohort = self
        self.members[request] = None
        self.sum_tokens += tokens
        self.sum_squares += tokens * tokens
        needs_block = tokens > request.table.num_blocks * self._block_size
        self.watch_block(request, 0 if needs_block else -tokens % self._block_size)
        self._ends_due.setdefault(request.limit - request.generated, {})[request] = None

    def leave(self, request: SchedRequest) -> None:
        """Take out and make its own numbers concrete: computed == L - 1 as between passes."""
        del self.members[request]
        tokens = request.num_tokens
        self.sum_tokens -= tokens
        self.sum_squares -= tokens * tokens
        request.generated += self.steps
        request.cohort = None
        request.computed = tokens - 1
        request.last_token_ms = self.last_end_ms

    def watch_block(self, request: SchedRequest, steps_ahead: int) -> None:
        """Look at the request's block boundary again `steps_ahead` passes after the coming one."""
        self._blocks_due.setdefault(self.steps + steps_ahead, {})[request] = None

    def take_blocks_due(self) -> list[SchedRequest]:
        """Requests whose coming token starts or fills a block, in running order."""
        due = self._blocks_due.pop(self.steps, None)
        return [] if due is None else sorted(due, key=_run_order)

    def step(self, end_ms: float) -> list[SchedRequest]:
        """Every member samples one token at `end_ms`; returns those that are complete now, in running
        order.
        """
        count = len(self.members)
        self.sum_squares += 2 * self.sum_tokens + count
        self.sum_tokens += count
        self.steps += 1
        self.last_end_ms = end_ms
        due = self._ends_due.pop(self.steps, None)
        if due is None:
            return []
        # An entry may be stale: its request left, or left and joined again with another offset.
        ended = [
            request for request in due if request.cohort is self and request.num_generated >= request.limit
        ]
        ended.sort(key=_run_order)
        return ended


def _run_order(request: SchedRequest) -> int:
    return request.run_order
