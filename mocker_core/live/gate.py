"""The gate of one rank: whether its loop takes requests and runs passes. Shut while the engine is paused.

Owns only that; the loop looks at it in `boundary`. Commands, cancellations, calls and deadlines are served
whatever the gate says.
"""

from __future__ import annotations

from collections.abc import Callable

from mocker_core.live.channels import GATE, Reply


class Gate:
    """Open at first. What waits for it to be drained has one answer: drained, opened again, or the end."""

    __slots__ = ("_draining", "_notify", "runs_passes", "takes_requests")

    def __init__(self, notify: Callable[[int], None]) -> None:
        self.takes_requests = True
        self.runs_passes = True
        self._notify = notify
        self._draining: list[Reply[bool]] = []

    def shut(self) -> None:
        """Take no request and run no pass any more; a pass under way goes on to its end."""
        self.takes_requests = self.runs_passes = False
        self._notify(GATE)

    def drain(self) -> Reply[bool]:
        """Take no request any more and shut once the core has none left. False: it was opened before."""
        reply: Reply[bool] = Reply()
        self.takes_requests = False
        self._draining.append(reply)
        self._notify(GATE)
        return reply

    def open(self) -> None:
        self.takes_requests = self.runs_passes = True
        for reply in self._take_draining():
            reply.send(False)
        self._notify(GATE)

    def drained(self) -> None:
        """The loop's word: the core has no request left."""
        if self._draining:
            self.runs_passes = False
            for reply in self._take_draining():
                reply.send(True)

    def close(self, error: Exception) -> None:
        """The loop has ended."""
        for reply in self._take_draining():
            reply.fail(error)

    def _take_draining(self) -> list[Reply[bool]]:
        draining, self._draining = self._draining, []
        return draining
