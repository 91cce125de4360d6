"""The scheduler commands, their results and effects (Dynamo's handoff vocabulary; engine.md section 7).

A command that brings a request may be refused, by a DuplicateIdError, RequestError or WrongWorkerTypeError;
nothing has changed then.
"""

from __future__ import annotations

from dataclasses import dataclass

from mocker_core.events import KvEvent, SchedulerLifecycleEvent
from mocker_core.request import DirectRequest, HandoffId, RequestId


@dataclass(frozen=True, slots=True)
class Submit:
    """A plain request joins the waiting queue. Submitted."""

    request: DirectRequest


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Drop a request wherever it is and free its KV. Applied, or Noop if it is unknown or ended."""

    request_id: RequestId


@dataclass(frozen=True, slots=True)
class SubmitHandoffPrefill:
    """A source: prefill, one hidden token, then its blocks stay held. Submitted."""

    handoff_id: HandoffId
    request: DirectRequest


@dataclass(frozen=True, slots=True)
class ReleaseSource:
    """The KV was moved: free a held source. Noop if it is not held (yet, or any more)."""

    handoff_id: HandoffId


@dataclass(frozen=True, slots=True)
class CancelSource:
    """Drop a source, running or held. Applied, or Noop."""

    handoff_id: HandoffId


@dataclass(frozen=True, slots=True)
class ReserveDestination:
    """Queue for blocks for the prompt of a handoff. DestinationAccepted; the grant comes as an event."""

    handoff_id: HandoffId
    request: DirectRequest


@dataclass(frozen=True, slots=True)
class ActivateDestination:
    """The KV is there: the request joins the waiting queue and never prefills. Noop unless reserved."""

    handoff_id: HandoffId


@dataclass(frozen=True, slots=True)
class CancelDestination:
    """Drop a destination: pending, reserved or active. Applied, or Noop."""

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
    """The request has joined the waiting queue."""

    request_id: RequestId


@dataclass(frozen=True, slots=True)
class DestinationAccepted:
    """The destination is pending; `DestinationReserved` tells of its grant."""

    request_id: RequestId


@dataclass(frozen=True, slots=True)
class Applied:
    """It was done."""


@dataclass(frozen=True, slots=True)
class Noop:
    """There was nothing to do: unknown, ended already, or not in that state."""


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
