"""The scheduler's mutable state of one request. One owner: the rank's scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from mocker_core.kv.manager import BlockTable
from mocker_core.request import DirectRequest, HandoffId

if TYPE_CHECKING:
    from mocker_core.sched.cohort import DecodeCohort


class RequestStatus(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    WAITING_FOR_REMOTE_KVS = "waiting_for_remote_kvs"
    HELD = "held"
    FINISHED = "finished"


class SchedRequest:
    """P prompt tokens, `generated` output tokens, `computed` tokens with KV (engine.md section 2).

    While the request is in the decode cohort, `generated` is an offset from the cohort's step
    count, so that a pass need not touch it; read it through `num_generated`.
    """

    __slots__ = (
        "arrival_order",
        "blocked_at_activations",
        "blocked_needed_blocks",
        "cohort",
        "computed",
        "destination_of",
        "first_admit_ms",
        "first_token_ms",
        "generated",
        "handoff_id",
        "kv_in_place",
        "last_token_ms",
        "limit",
        "max_output",
        "num_prompt_tokens",
        "output",
        "preemptions",
        "priority",
        "request",
        "request_id",
        "reused_input_tokens",
        "run_order",
        "sampled_pass",
        "status",
        "table",
    )

    def __init__(
        self, request: DirectRequest, table: BlockTable, output: Sequence[int], max_output: int
    ) -> None:
        self.request = request
        self.request_id = request.request_id
        self.num_prompt_tokens = request.num_prompt_tokens
        self.max_output = max_output
        self.limit = max_output
        self.output = output
        self.table = table
        self.priority = request.priority
        self.status = RequestStatus.WAITING
        self.generated = 0
        self.computed = 0
        self.cohort: DecodeCohort | None = None
        self.kv_in_place = False
        self.handoff_id: HandoffId | None = None  # set on the source side
        self.destination_of: HandoffId | None = None  # set on the destination side
        self.first_admit_ms: float | None = None
        self.reused_input_tokens = 0
        self.preemptions = 0
        self.arrival_order = 0
        self.run_order = 0
        self.sampled_pass = -1
        self.first_token_ms: float | None = None
        self.last_token_ms: float | None = None
        self.blocked_needed_blocks = 0
        self.blocked_at_activations = -1

    @property
    def num_generated(self) -> int:
        return self.generated if self.cohort is None else self.generated + self.cohort.steps

    @property
    def num_tokens(self) -> int:
        """L: prompt and generated tokens."""
        return self.num_prompt_tokens + self.num_generated

    @property
    def is_complete(self) -> bool:
        return self.num_generated >= self.limit
