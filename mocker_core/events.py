"""What the engine tells the outside: output signals, admissions, lifecycle and KV events (frozen values)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from mocker_core.request import BlockIdentity, HandoffId, RequestId

# A token of a request that goes on. A bare pair: one is built per token per pass, and a class of its own
# would cost as much as all else that the engine does for a token.
PlainToken = tuple[RequestId, int]


class OutputSignal(NamedTuple):
    """One token of one request, or its end.

    `token_id` is None when no token comes with it (rejected, or max_output 0). `rejected` implies
    `completed`. `handoff_delay_ms` is set only on the hidden token of a handoff prefill, which
    must never be shown.
    """

    request_id: RequestId
    token_id: int | None
    completed: bool
    rejected: bool = False
    handoff_delay_ms: float | None = None
    hidden: bool = False


class AdmissionEvent(NamedTuple):
    """A waiting request was scheduled; published at the pass start. `readmission` after a preemption."""

    request_id: RequestId
    reused_input_tokens: int
    readmission: bool = False


class PrefillChunk(NamedTuple):
    """Prompt (or recomputed) tokens that one pass computes for one request."""

    request_id: RequestId
    tokens: int


class StorageTier(StrEnum):
    DEVICE = "device"
    HOST = "host"
    DISK = "disk"


class StoredBlock(NamedTuple):
    """One cached block: its chain identity and, where tokens exist, their ids."""

    identity: BlockIdentity
    token_ids: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Consecutive blocks became findable in `tier`; `parent` is the identity before the first."""

    event_id: int
    parent: BlockIdentity | None
    blocks: tuple[StoredBlock, ...]
    tier: StorageTier = StorageTier.DEVICE


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """The last copy of each identity left `tier`."""

    event_id: int
    identities: tuple[BlockIdentity, ...]
    tier: StorageTier = StorageTier.DEVICE


@dataclass(frozen=True, slots=True)
class BlocksCleared:
    """Every identity of every tier was dropped."""

    event_id: int


KvEvent = BlocksStored | BlocksRemoved | BlocksCleared


@dataclass(frozen=True, slots=True)
class SourceHeld:
    """A handoff prefill completed; its blocks stay until released. `transfer_delay_ms` None = no delay.

    `prompt_tokens` is what a full_prompt transfer moves.
    """

    handoff_id: HandoffId
    request_id: RequestId
    transfer_delay_ms: float | None
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class DestinationReserved:
    """A destination got its blocks. `transferable_prompt_tokens` = freshly reserved blocks x block_size."""

    handoff_id: HandoffId
    request_id: RequestId
    transferable_prompt_tokens: int


@dataclass(frozen=True, slots=True)
class SourceExpired:
    """A held source was cancelled because nobody released it in time."""

    handoff_id: HandoffId
    request_id: RequestId


@dataclass(frozen=True, slots=True)
class DestinationExpired:
    """A destination was cancelled because nobody activated it in time."""

    handoff_id: HandoffId
    request_id: RequestId


SchedulerLifecycleEvent = SourceHeld | DestinationReserved | SourceExpired | DestinationExpired
