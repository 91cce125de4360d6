"""The scheduler commands, their results and effects (Dynamo's handoff vocabulary; engine.md section 7)."""

from __future__ import annotations

from dataclasses import dataclass

from mocker_core.events import KvEvent, SchedulerLifecycleEvent
from mocker_core.request import DirectRequest, HandoffId, RequestId


@dataclass(frozen=True, slots=True)
class Submit:
    request: DirectRequest


@dataclass(frozen=True, slots=True)
class CancelRequest:
    request_id: RequestId


@dataclass(frozen=True, slots=True)
class SubmitHandoffPrefill:
    handoff_id: HandoffId
    request: DirectRequest


@dataclass(frozen=True, slots=True)
class ReleaseSource:
    handoff_id: HandoffId


@dataclass(frozen=True, slots=True)
class CancelSource:
    handoff_id: HandoffId


@dataclass(frozen=True, slots=True)
class ReserveDestination:
    handoff_id: HandoffId
    request: DirectRequest


@dataclass(frozen=True, slots=True)
class ActivateDestination:
    handoff_id: HandoffId


@dataclass(frozen=True, slots=True)
class CancelDestination:
    handoff_id: HandoffId


SchedulerCommand = (
    Submit
    | CancelRequest
    | SubmitHandoffPrefill
    | ReleaseSource
    | CancelSource
    | ReserveDestination
    | ActivateDestination
    | CancelDestination
)


@dataclass(frozen=True, slots=True)
class Submitted:
    request_id: RequestId


@dataclass(frozen=True, slots=True)
class DestinationAccepted:
    request_id: RequestId


@dataclass(frozen=True, slots=True)
class Applied:
    pass


@dataclass(frozen=True, slots=True)
class Noop:
    pass


CommandResult = Submitted | DestinationAccepted | Applied | Noop


@dataclass(frozen=True, slots=True)
class CommandEffects:
    """What one command did: published in the order KV events, reply, lifecycle, metrics."""

    result: CommandResult
    lifecycle: tuple[SchedulerLifecycleEvent, ...] = ()
    kv_events: tuple[KvEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class TickEffects:
    """What time alone did (transfers finished, holds expired, a destination granted)."""

    lifecycle: tuple[SchedulerLifecycleEvent, ...] = ()
    kv_events: tuple[KvEvent, ...] = ()
    granted: bool = False


def can_apply_during_pass(command: SchedulerCommand) -> bool:
    """Only these two are safe while a pass is modelled (section 6); any other is deferred."""
    return isinstance(command, SubmitHandoffPrefill | ReserveDestination)
