"""The loop of one rank: receive, run a pass, publish, wait, publish, controls (docs/pass-boundary.md).

One task runs it and it alone touches the core. What happens in the waits is `boundary`'s, the order
of what goes out `publisher`'s, the time of the next pass `plan`'s.
"""

from __future__ import annotations

from mocker_core.commands import Applied, Noop
from mocker_core.errors import EngineDeadError
from mocker_core.live.boundary import Boundary, RankContext
from mocker_core.live.channels import Cancellation, CoreCall
from mocker_core.live.protocols import EngineListener


class RankLoop:
    """One rank's scheduler loop and its lifecycle reader."""

    def __init__(self, context: RankContext, listener: EngineListener) -> None:
        self.context = context
        self._listener = listener
        self._boundary = Boundary(context)
        self._closed = False

    async def run(self) -> None:
        """Run passes until shut down. What a core or listener raises ends the loop."""
        context = self.context
        core, publisher = context.core, context.publisher
        boundary, controls_enabled = self._boundary, context.controls_enabled
        try:
            while (start_ms := await boundary.receive_until_schedulable()) is not None:
                metrics_before = publisher.current_metrics()
                result = core.execute_pass(start_ms)
                publisher.publish_pass_start(result)
                takes_time = result.end_ms > start_ms
                if takes_time and not await boundary.wait_for_pass_boundary(result.end_ms):
                    return  # shut down: that pass is never published
                await publisher.publish_pass(result)
                progress = takes_time or result.made_progress(metrics_before)
                if controls_enabled:
                    progress = await boundary.apply_controls() or progress
                if takes_time:
                    continue
                if progress:
                    await boundary.yield_once()
                elif not await boundary.wait_for_progress_wake():
                    return
        finally:
            context.ports.lifecycle.close()

    async def read_lifecycle(self) -> None:
        """The one reader of the lifecycle channel, so that the loop never stops for want of one."""
        lifecycle = self.context.ports.lifecycle
        while (event := await lifecycle.receive()) is not None:
            self._listener.on_lifecycle(self.context.dp_rank, event)
            if not lifecycle:
                self._listener.flush()

    def close(self, reason: str) -> None:
        """The loop has ended: answer everyone who still waits, and tell the listener who is left."""
        if self._closed:
            return
        self._closed = True
        context, ports = self.context, self.context.ports
        error = EngineDeadError(reason)
        ports.sleeper.close()
        ports.lifecycle.close()
        left = ports.commands.close(error)
        deferred = self._boundary.take_deferred()
        if deferred is not None:
            left.insert(0, deferred)
        for envelope in left:
            envelope.reply.fail(error)
        ports.requests.clear()
        ports.gate.close(error)
        while ports.cancellations:
            waiting = ports.cancellations.take()
            if isinstance(waiting, CoreCall):
                waiting.reply.fail(error)
            else:
                self._answer_cancellation(waiting)
        request_ids = context.ids.end_all(context.dp_rank)
        if request_ids:
            self._listener.on_dead(context.dp_rank, request_ids, reason)
        self._listener.flush()

    def _answer_cancellation(self, cancellation: Cancellation) -> None:
        """Its request ends as cancelled, not as dead: the client asked for it first."""
        ids, request_id = self.context.ids, cancellation.request_id
        known = ids.is_accepted(request_id)
        if known:
            ids.end(request_id)
        self.context.publisher.reply_cancellation(cancellation, Applied() if known else Noop())
