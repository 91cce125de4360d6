"""What is known of each handoff on this server, for /admin/handoffs and the dashboard.

Owns the records of those that live and of the latest that ended. Decides nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from mocker_core.events import (
    DestinationExpired,
    DestinationReserved,
    SchedulerLifecycleEvent,
    SourceExpired,
    SourceHeld,
)
from mocker_core.request import HandoffId, RequestId


@dataclass(slots=True, kw_only=True)
class HandoffRecord:
    """One handoff, times in engine ms. `source` and `destination` say where a side is and what it told.

    `run_by`: coordinator (this server drives it), peer (another one does) or commands (a person does).
    """

    handoff_id: HandoffId
    request_id: RequestId
    run_by: str
    order: str | None = None
    state: str = "new"
    outcome: str | None = None
    reason: str = ""
    source: dict[str, Any] | None = None
    destination: dict[str, Any] | None = None
    created_ms: float = 0.0
    ended_ms: float | None = None
    timeline: list[tuple[float, str]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "handoff_id": self.handoff_id,
            "request_id": self.request_id,
            "run_by": self.run_by,
            "order": self.order,
            "state": self.state,
            "outcome": self.outcome,
            "reason": self.reason or None,
            "source": self.source,
            "destination": self.destination,
            "created_ms": self.created_ms,
            "ended_ms": self.ended_ms,
            "timeline": [{"at_ms": at_ms, "event": event} for at_ms, event in self.timeline],
        }


class HandoffBook:
    """Records by handoff id; at most `keep` ended ones stay."""

    def __init__(self, now_ms: Callable[[], float], keep: int = 256) -> None:
        self._now_ms = now_ms
        self._keep: Final = keep
        self._open: dict[HandoffId, HandoffRecord] = {}
        self._ended: OrderedDict[HandoffId, HandoffRecord] = OrderedDict()

    def open(self, record: HandoffRecord) -> HandoffRecord:
        """A handoff begins. An ended record of the same id is replaced."""
        record.created_ms = self._now_ms()
        self._ended.pop(record.handoff_id, None)
        self._open[record.handoff_id] = record
        return record

    def find(self, handoff_id: str) -> HandoffRecord | None:
        key = HandoffId(handoff_id)
        return self._open.get(key) or self._ended.get(key)

    def find_request(self, request_id: RequestId) -> HandoffRecord | None:
        """The live handoff of a request."""
        return next((record for record in self._open.values() if record.request_id == request_id), None)

    def find_open(self, handoff_id: str) -> HandoffRecord | None:
        return self._open.get(HandoffId(handoff_id))

    def all(self) -> list[HandoffRecord]:
        """The live ones, oldest first, then the ended ones, latest first."""
        return [*self._open.values(), *reversed(self._ended.values())]

    def discard(self, record: HandoffRecord) -> None:
        """It never began."""
        self._open.pop(record.handoff_id, None)

    def note(self, record: HandoffRecord, event: str, state: str | None = None) -> None:
        record.timeline.append((self._now_ms(), event))
        if state is not None:
            record.state = state

    def close(self, record: HandoffRecord, outcome: str, reason: str = "") -> None:
        """The handoff is over; a second close is ignored."""
        if self._open.get(record.handoff_id) is not record:
            return
        del self._open[record.handoff_id]
        record.state, record.outcome, record.reason, record.ended_ms = "done", outcome, reason, self._now_ms()
        self._ended[record.handoff_id] = record
        while len(self._ended) > self._keep:
            self._ended.popitem(last=False)

    def on_lifecycle(self, dp_rank: int, event: SchedulerLifecycleEvent) -> None:
        record = self._open.get(event.handoff_id)
        if record is None:
            return
        match event:
            case SourceHeld():
                facts = {"dp_rank": dp_rank, "transfer_delay_ms": event.transfer_delay_ms}
                record.source = {**(record.source or {}), **facts, "prompt_tokens": event.prompt_tokens}
                self._seen(record, "source held", "held")
            case DestinationReserved():
                facts = {"dp_rank": dp_rank, "transferable_prompt_tokens": event.transferable_prompt_tokens}
                record.destination = {**(record.destination or {}), **facts}
                self._seen(record, "destination reserved", "reserved")
            case SourceExpired() | DestinationExpired():
                what = "source expired" if isinstance(event, SourceExpired) else "destination expired"
                self._seen(record, what, "expired")
                if record.run_by == "commands":
                    self.close(record, "expired", f"The {what}.")

    def _seen(self, record: HandoffRecord, event: str, state: str) -> None:
        # A coordinator's handoff has its own words for what happened, in its own order.
        if record.run_by != "coordinator":
            self.note(record, event, state)
