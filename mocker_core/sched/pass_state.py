"""What one pass has decided so far; dropped when the pass ends."""

from __future__ import annotations

from typing import NamedTuple

from mocker_core.events import AdmissionEvent, PrefillChunk
from mocker_core.request import RequestId
from mocker_core.sched.state import SchedRequest


class Given(NamedTuple):
    """What a request was given in this pass, kept to undo it on preemption. Tokens."""

    tokens: int
    prompt_before: int
    prompt_tokens: int


class PassState:
    """Budget, prefill batch sums and the events of one pass. `index` runs over the scheduler's tail list."""

    __slots__ = (
        "admissions",
        "batch",
        "batch_isl",
        "batch_prefix",
        "budget",
        "cached_tokens",
        "cohort_given",
        "given",
        "index",
        "now_ms",
        "preempted",
        "rejected",
    )

    def __init__(self, now_ms: float, budget: int) -> None:
        self.now_ms = now_ms
        self.budget = budget
        self.batch = 0
        self.batch_isl = 0
        self.batch_prefix = 0
        self.index = 0
        self.cohort_given = False
        self.cached_tokens = 0
        self.given: dict[SchedRequest, Given] = {}
        self.admissions: list[AdmissionEvent] = []
        self.rejected: list[SchedRequest] = []
        self.preempted: list[RequestId] = []

    def give(self, request: SchedRequest, given: Given, *, priced: bool) -> None:
        """Account for what a request was given; `priced` says whether its prompt work is charged here."""
        self.given[request] = given
        self.budget -= given.tokens
        if given.prompt_tokens and priced:
            self.batch += 1
            self.batch_isl += given.prompt_before + given.prompt_tokens
            self.batch_prefix += given.prompt_before

    def take_back(self, request: SchedRequest, *, priced: bool) -> None:
        """Undo `give` for a request that is preempted in this very pass."""
        given = self.given.pop(request, None)
        if given is None:
            return
        self.budget += given.tokens
        if given.prompt_tokens and priced:
            self.batch -= 1
            self.batch_isl -= given.prompt_before + given.prompt_tokens
            self.batch_prefix -= given.prompt_before

    def prefill_chunks(self) -> list[PrefillChunk]:
        """Chunks computed for requests that are still running their prompt (or its recompute)."""
        return [
            PrefillChunk(request.request_id, given.tokens)
            for request, given in self.given.items()
            if given.tokens > 1 or given.prompt_tokens
        ]
