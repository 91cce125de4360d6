"""Routes each pass's outputs to the requests that wait for them, and writes them out at the flush.

Owns the table of live requests and the lateness histogram; implements `EngineListener`. Must not know HTTP
shapes: a `Sink` renders its own tokens. All calls come on the event loop; none may block or raise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from app.lateness import LatenessHistogram
from app.stream_response import WriteQueue
from mocker_core.errors import EngineDeadError, MockerError
from mocker_core.events import KvEvent, OutputSignal, PlainToken, SchedulerLifecycleEvent
from mocker_core.metrics import ForwardPassMetrics, MockerMetrics
from mocker_core.request import RequestId
from mocker_core.sched.output import EnginePassResult

logger = logging.getLogger("mocker.dispatch")

# Streams written between two looks at the clock: a look costs about a tenth of a write.
_WRITES_PER_CLOCK_READ = 8


class Sink(Protocol):
    """One engine request as its answer sees it."""

    def admitted(self, reused_input_tokens: int, readmission: bool, dp_rank: int, now_ms: float) -> None: ...

    def preempted(self) -> None: ...

    def token(self, token_id: int | None, end_ms: float) -> None:
        """A token that is not the last signal of its request."""

    def end(self, signal: OutputSignal, end_ms: float) -> None:
        """The last signal: with a token, without, or rejected. The request is forgotten already."""

    def fail(self, error: Exception) -> None:
        """No further token will come. The request is forgotten already."""


class EngineObserver:
    """Base of those who watch every effect (metrics, timelines, event rings). Override what is needed.

    Called after the requests' own sinks. An observer that raises is logged and kept.
    """

    def on_pass_start(self, dp_rank: int, result: EnginePassResult) -> None: ...

    def on_pass_end(self, dp_rank: int, result: EnginePassResult) -> None: ...

    def on_kv_events(self, dp_rank: int, events: Sequence[KvEvent]) -> None: ...

    def on_fpm(self, dp_rank: int, fpm: ForwardPassMetrics) -> None: ...

    def on_lifecycle(self, dp_rank: int, event: SchedulerLifecycleEvent) -> None: ...

    def on_metrics(self, dp_rank: int, metrics: MockerMetrics) -> None: ...

    def on_dead(self, dp_rank: int, request_ids: Sequence[RequestId], reason: str) -> None: ...


class Dispatcher:
    """`EngineListener` of the server. `now_ms` is the engine's clock; set it before the first flush."""

    def __init__(self, writes: WriteQueue | None = None) -> None:
        self.writes = writes or WriteQueue()
        self.lateness = LatenessHistogram()
        self.now_ms: Callable[[], float] = lambda: 0.0
        self._sinks: dict[RequestId, Sink] = {}
        self._unadmitted: set[RequestId] = set()
        self._observers: list[EngineObserver] = []
        self._hearing: dict[str, list[EngineObserver]] = {}
        self._drained: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._sinks)

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._sinks

    @property
    def waiting_for_admission(self) -> int:
        """Requests that no pass has admitted yet; exact between passes, unlike the metrics."""
        return len(self._unadmitted)

    def live_ids(self) -> list[RequestId]:
        return list(self._sinks)

    def find(self, request_id: RequestId) -> Sink | None:
        return self._sinks.get(request_id)

    def add_observer(self, observer: EngineObserver) -> None:
        self._observers.append(observer)
        self._hearing.clear()

    def remove_observer(self, observer: EngineObserver) -> None:
        self._observers.remove(observer)
        self._hearing.clear()

    def register(self, request_id: RequestId, sink: Sink) -> None:
        """Must come before the request is submitted."""
        assert request_id not in self._sinks, request_id
        self._sinks[request_id] = sink
        self._unadmitted.add(request_id)

    def forget(self, request_id: RequestId) -> None:
        """Later signals of this request report its receiver as gone."""
        self._sinks.pop(request_id, None)
        self._unadmitted.discard(request_id)
        if self._drained is not None and not self._sinks:
            self._drained.set()

    async def wait_drained(self, timeout_s: float) -> bool:
        """Wait until no request is live; False if some still are after `timeout_s`."""
        if not self._sinks:
            return True
        self._drained = asyncio.Event()
        try:
            async with asyncio.timeout(timeout_s):
                await self._drained.wait()
        except TimeoutError:
            return False
        return True

    def on_pass_start(self, dp_rank: int, result: EnginePassResult) -> None:
        now_ms = result.start_ms
        for event in result.admissions:
            self._unadmitted.discard(event.request_id)
            sink = self._sinks.get(event.request_id)
            if sink is not None:
                sink.admitted(event.reused_input_tokens, event.readmission, dp_rank, now_ms)
        for request_id in result.preempted:
            sink = self._sinks.get(request_id)
            if sink is not None:
                sink.preempted()
        self._notify("on_pass_start", dp_rank, result)

    def on_outputs(
        self,
        dp_rank: int,
        result: EnginePassResult,
        tokens: Sequence[PlainToken],
        ends: Sequence[OutputSignal],
    ) -> Collection[RequestId]:
        sinks = self._sinks
        end_ms = result.end_ms
        gone: list[RequestId] = []
        # Hot: once per token.
        for request_id, token_id in tokens:
            sink = sinks.get(request_id)
            if sink is None:
                gone.append(request_id)
                continue
            try:
                sink.token(token_id, end_ms)
            except Exception as exc:
                self._drop_broken(request_id, sink, exc)
                gone.append(request_id)
        for signal in ends:
            request_id = signal.request_id
            sink = sinks.get(request_id)
            if sink is None:
                gone.append(request_id)
                continue
            self.forget(request_id)
            try:
                sink.end(signal, end_ms)
            except Exception as exc:
                self._drop_broken(request_id, sink, exc)
                gone.append(request_id)
        self._notify("on_pass_end", dp_rank, result)
        return gone

    def _drop_broken(self, request_id: RequestId, sink: Sink, error: Exception) -> None:
        logger.error("Request %s failed while its token was rendered.", request_id, exc_info=error)
        self.forget(request_id)
        self._fail(sink, error)

    def flush(self) -> None:
        # Hot: once per stream that has something to write.
        if not self.writes.dirty:
            return
        dirty = self.writes.dirty.copy()
        self.writes.dirty.clear()
        # Lateness is taken after each few writes, for the oldest token: too late rather than too early.
        plan_ms: float | None = None
        tokens = writes = 0
        for response in dirty:
            if response.plan_ms is not None:
                if writes == _WRITES_PER_CLOCK_READ or response.plan_ms != plan_ms:
                    if plan_ms is not None:
                        self.lateness.observe(self.now_ms() - plan_ms, tokens)
                    plan_ms = response.plan_ms
                    tokens = writes = 0
                tokens += len(response.pending)
                writes += 1
                response.plan_ms = None
            response.write()
        if plan_ms is not None:
            self.lateness.observe(self.now_ms() - plan_ms, tokens)

    async def ping_silent(self, after_s: float) -> None:
        """Send an SSE comment to each stream that was silent for `after_s`, until cancelled; 0: never.

        A comment begins the stream, so a failure after it can no longer have its own status.
        """
        if after_s <= 0:
            return
        while True:
            await asyncio.sleep(after_s / 2)
            self.writes.ping_silent()

    def on_kv_events(self, dp_rank: int, events: Sequence[KvEvent]) -> None:
        self._notify("on_kv_events", dp_rank, events)

    def on_fpm(self, dp_rank: int, fpm: ForwardPassMetrics) -> None:
        self._notify("on_fpm", dp_rank, fpm)

    def on_lifecycle(self, dp_rank: int, event: SchedulerLifecycleEvent) -> None:
        self._notify("on_lifecycle", dp_rank, event)

    def on_metrics(self, dp_rank: int, metrics: MockerMetrics) -> None:
        self._notify("on_metrics", dp_rank, metrics)

    def on_dead(self, dp_rank: int, request_ids: Sequence[RequestId], reason: str) -> None:
        error = EngineDeadError(f"The engine of rank {dp_rank} ended: {reason}")
        for request_id in request_ids:
            self.fail(request_id, error)
        self._notify("on_dead", dp_rank, request_ids, reason)
        self.flush()

    def fail(self, request_id: RequestId, error: MockerError | Exception) -> None:
        """End one request with an error; its answer goes out at the next flush. Unknown ids are ignored."""
        sink = self._sinks.get(request_id)
        if sink is not None:
            self.forget(request_id)
            self._fail(sink, error)

    def _fail(self, sink: Sink, error: Exception) -> None:
        try:
            sink.fail(error)
        except Exception:
            logger.exception("A request could not be told of its failure.")

    def _notify(self, method: str, *details: object) -> None:
        observers = self._hearing.get(method)
        if observers is None:
            ignores = getattr(EngineObserver, method)
            observers = [one for one in self._observers if getattr(type(one), method) is not ignores]
            self._hearing[method] = observers
        for observer in observers:
            try:
                getattr(observer, method)(*details)
            except Exception:
                logger.exception("%s failed.", type(observer).__name__)
