"""Which request and handoff ids are alive in this server, and on which rank.

Owns uniqueness across ranks and each rank's load. An id lives until its end was published, so
what a client can still hear of is alive. Knows nothing of scheduling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mocker_core.commands import (
    Applied,
    CancelDestination,
    CancelRequest,
    CancelSource,
    CommandResult,
    ReleaseSource,
    ReserveDestination,
    SchedulerCommand,
    Submit,
    SubmitHandoffPrefill,
)
from mocker_core.errors import DuplicateIdError
from mocker_core.events import DestinationExpired, SchedulerLifecycleEvent, SourceExpired
from mocker_core.request import DirectRequest, HandoffId, RequestId
from mocker_core.sched.output import FinishedRequest


@dataclass(slots=True)
class _Live:
    rank: int
    accepted: bool
    handoff_id: HandoffId | None = None
    is_source: bool = False
    held: bool = False


class LiveIds:
    """The ledger of one server. A rank's load = requests submitted to it that neither ended nor are held."""

    def __init__(self, dp_size: int) -> None:
        self._requests: dict[RequestId, _Live] = {}
        self._handoffs: dict[HandoffId, RequestId] = {}
        self._loads = [0] * dp_size

    def least_loaded(self) -> int:
        """The rank with the fewest running and waiting requests, the lowest one of equals."""
        return self._loads.index(min(self._loads))

    def load(self, rank: int) -> int:
        return self._loads[rank]

    def rank_of(self, request_id: RequestId) -> int | None:
        live = self._requests.get(request_id)
        return None if live is None else live.rank

    def rank_of_handoff(self, handoff_id: HandoffId) -> int | None:
        request_id = self._handoffs.get(handoff_id)
        return None if request_id is None else self.rank_of(request_id)

    def is_accepted(self, request_id: RequestId) -> bool:
        """Alive, and not only claimed by a command that still waits."""
        live = self._requests.get(request_id)
        return live is not None and live.accepted

    def accepted(self) -> list[RequestId]:
        """Every accepted id, oldest first."""
        return [request_id for request_id, live in self._requests.items() if live.accepted]

    def is_held(self, request_id: RequestId) -> bool:
        """A handoff source whose prefill completed and whose KV waits for a release."""
        live = self._requests.get(request_id)
        return live is not None and live.held

    def submit(self, request_id: RequestId, rank: int) -> None:
        """A plain request goes to `rank`. Raises DuplicateIdError."""
        self._add(request_id, _Live(rank, accepted=True))

    def claim(self, command: SchedulerCommand, rank: int) -> None:
        """Reserve the ids that a command brings, before it is sent. Raises DuplicateIdError."""
        request = brought_request(command)
        if request is None:
            return
        live = _Live(rank, accepted=False, is_source=isinstance(command, SubmitHandoffPrefill))
        if isinstance(command, SubmitHandoffPrefill | ReserveDestination):
            live.handoff_id = command.handoff_id
            if command.handoff_id in self._handoffs:
                raise DuplicateIdError(f"handoff id {command.handoff_id} is in use; send a new id.")
        self._add(request.request_id, live)
        if live.handoff_id is not None:
            self._handoffs[live.handoff_id] = request.request_id

    def unclaim(self, command: SchedulerCommand) -> None:
        """The command was refused or never sent."""
        request = brought_request(command)
        if request is not None:
            self.end(request.request_id)

    def settle(self, command: SchedulerCommand, result: CommandResult) -> None:
        """The rank applied a command with this result."""
        request = brought_request(command)
        if request is not None:
            self._requests[request.request_id].accepted = True
        elif isinstance(result, Applied):
            match command:
                case CancelRequest(request_id):
                    self.end(request_id)
                case ReleaseSource(handoff_id) | CancelSource(handoff_id) | CancelDestination(handoff_id):
                    self.end(self._handoffs[handoff_id])
                case _:
                    pass

    def finished(self, finished: FinishedRequest) -> None:
        """Its last output was published; a completed handoff source stays alive while its KV is held."""
        live = self._requests.get(finished.request_id)
        if live is not None and live.is_source and not finished.rejected:
            live.held = True
            self._loads[live.rank] -= 1
        else:
            self.end(finished.request_id)

    def expired(self, events: Sequence[SchedulerLifecycleEvent]) -> None:
        for event in events:
            if isinstance(event, SourceExpired | DestinationExpired):
                self.end(event.request_id)

    def end(self, request_id: RequestId) -> None:
        """Forget it and its handoff; no effect on an unknown id."""
        live = self._requests.pop(request_id, None)
        if live is None:
            return
        if not live.held:
            self._loads[live.rank] -= 1
        if live.handoff_id is not None:
            del self._handoffs[live.handoff_id]

    def end_all(self, rank: int) -> list[RequestId]:
        """Forget every id of a rank that stopped; returns the accepted ones, oldest first."""
        ended = [(request_id, live) for request_id, live in self._requests.items() if live.rank == rank]
        for request_id, _ in ended:
            self.end(request_id)
        return [request_id for request_id, live in ended if live.accepted]

    def _add(self, request_id: RequestId, live: _Live) -> None:
        if request_id in self._requests:
            raise DuplicateIdError(f"request id {request_id} is in use; send a new id.")
        self._requests[request_id] = live
        self._loads[live.rank] += 1


def brought_request(command: SchedulerCommand) -> DirectRequest | None:
    """The new request that a command brings, if it is of that kind."""
    if isinstance(command, Submit | SubmitHandoffPrefill | ReserveDestination):
        return command.request
    return None
