"""Gives each handoff's lifecycle events to whoever runs that handoff. Knows ids, nothing else."""

from __future__ import annotations

from collections.abc import Callable

from mocker_core.events import SchedulerLifecycleEvent
from mocker_core.request import HandoffId

Listen = Callable[[SchedulerLifecycleEvent], None]


class LifecycleHub:
    """One listener per handoff id."""

    def __init__(self) -> None:
        self._listeners: dict[HandoffId, Listen] = {}

    def __len__(self) -> int:
        return len(self._listeners)

    def subscribe(self, handoff_id: HandoffId, listen: Listen) -> None:
        self._listeners[handoff_id] = listen

    def unsubscribe(self, handoff_id: HandoffId) -> None:
        self._listeners.pop(handoff_id, None)

    def on_lifecycle(self, dp_rank: int, event: SchedulerLifecycleEvent) -> None:
        listen = self._listeners.get(event.handoff_id)
        if listen is not None:
            listen(event)
