"""The thread that encodes KV events, publishes them and answers replays; one for all ranks.

Owns sockets and queues (a replay is `replay`'s). The engine's side only appends to a bounded queue, so
neither a slow nor an absent subscriber can hold it up: what has no room is dropped and counted, and its
sequence number is never used again, so that a subscriber sees the hole.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import zmq

from app.dispatch import EngineObserver
from app.kv_events.config import KvEventsConfig, binds
from app.kv_events.replay import PublishCounts, ReplayServer
from app.kv_events.wire import Batch, BatchEncoder, sequence_bytes
from mocker_core.errors import ArgumentError
from mocker_core.events import KvEvent

logger = logging.getLogger("mocker.kv_events")

# How long a stop waits for the thread to send what is queued, and then for subscribers to get it.
_STOP_S = 2.0
_LINGER_MS = 100
# How soon a replay goes on whose client could not take more.
_REPLAY_RETRY_MS = 2


class _Rank:
    """What belongs to one rank. The queue is shared by both threads (a deque's ends are atomic)."""

    def __init__(self, config: KvEventsConfig, dp_rank: int) -> None:
        self.dp_rank = dp_rank
        self.endpoint, self.replay_endpoint = config.endpoints(dp_rank)
        self.queue: deque[Batch] = deque()
        self.next_sequence = 0
        self.counts = PublishCounts()
        self.publish_socket: zmq.Socket[bytes] | None = None
        self.replays: ReplayServer | None = None


class ZmqKvEventPublisher(EngineObserver):
    """Publishes each rank's KV events on an endpoint of its own, between `start` and `stop`."""

    def __init__(
        self,
        config: KvEventsConfig,
        dp_size: int,
        block_size: int,
        *,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        config.check_ranks(dp_size)
        self._config = config
        self._ranks = [_Rank(config, rank) for rank in range(dp_size)]
        self._encoder = BatchEncoder(block_size, config.event_encoding)
        self._topic = config.topic.encode()
        self._now_s = now_s
        self._sockets: list[zmq.Socket[bytes]] = []
        self._wake_sender: zmq.Socket[bytes] | None = None
        self._wake_receiver: zmq.Socket[bytes] | None = None
        self._poller: zmq.Poller | None = None
        self._thread: threading.Thread | None = None
        self._signalled = False
        self._stopping = False

    def counts(self, dp_rank: int) -> PublishCounts:
        return self._ranks[dp_rank].counts

    def start(self) -> None:
        """Open every socket and start the thread. Raises ArgumentError if an endpoint cannot be had."""
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
        wake = f"inproc://kv-events-wake-{id(self)}"
        try:
            for rank in self._ranks:
                self._open(context, rank)
            self._wake_receiver = self._socket(context, zmq.PAIR)
            self._wake_receiver.bind(wake)
            self._wake_sender = self._socket(context, zmq.PAIR)
            self._wake_sender.connect(wake)
            self._poller = zmq.Poller()
            self._poller.register(self._wake_receiver, zmq.POLLIN)
            for rank in self._ranks:
                if rank.replays is not None:
                    self._poller.register(rank.replays.socket, zmq.POLLIN)
        except BaseException:
            self._close_sockets()
            raise
        self._thread = threading.Thread(target=self._run, daemon=True, name="kv-events")
        self._thread.start()

    def on_kv_events(self, dp_rank: int, events: Sequence[KvEvent]) -> None:
        # Hot: the engine's side. The sequence number is taken even if the message is dropped.
        rank = self._ranks[dp_rank]
        sequence = rank.next_sequence
        rank.next_sequence = sequence + 1
        if self._thread is None or len(rank.queue) >= self._config.max_queue_size:
            if not rank.counts.dropped:
                logger.warning(
                    "KV events of rank %d are dropped: %d messages wait to be published (max_queue_size).",
                    dp_rank,
                    len(rank.queue),
                )
            rank.counts.dropped += 1
            return
        rank.queue.append(Batch(sequence, self._now_s(), dp_rank, tuple(events)))
        if not self._signalled:
            self._signalled = True
            self._wake()

    def stop(self) -> None:
        """Send what is queued, as far as it goes quickly, and close the sockets. Harmless when repeated."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._stopping = True
        self._wake()
        thread.join(_STOP_S)
        if not thread.is_alive():
            self._close_sockets()

    def _wake(self) -> None:
        if self._wake_sender is not None:
            with contextlib.suppress(zmq.Again):
                self._wake_sender.send(b"", zmq.NOBLOCK)

    def _close_sockets(self) -> None:
        for socket in self._sockets:
            socket.close(linger=_LINGER_MS)
        self._sockets.clear()

    def _socket(self, context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
        socket = context.socket(kind)
        self._sockets.append(socket)
        return socket

    def _open(self, context: zmq.Context[zmq.Socket[bytes]], rank: _Rank) -> None:
        rank.publish_socket = self._socket(context, zmq.PUB)
        rank.publish_socket.set_hwm(self._config.hwm)
        if binds(rank.endpoint):
            _bind(rank.publish_socket, rank.endpoint)
        else:
            rank.publish_socket.connect(rank.endpoint)
        if rank.replay_endpoint is not None:
            socket = self._socket(context, zmq.ROUTER)
            _bind(socket, rank.replay_endpoint)
            rank.replays = ReplayServer(socket, rank.counts, self._config.buffer_steps)

    def _run(self) -> None:
        """The thread: sleep until there is something to publish or to replay."""
        try:
            while not self._stopping:
                self._turn()
            self._turn()
        except Exception:
            logger.exception("The thread that publishes KV events failed; no further ones are sent.")

    def _turn(self) -> None:
        assert self._wake_receiver is not None and self._poller is not None
        busy = any(rank.replays is not None and rank.replays.busy for rank in self._ranks)
        timeout_ms = 0 if self._stopping else _REPLAY_RETRY_MS if busy else None
        ready = dict(self._poller.poll(timeout_ms))
        if self._wake_receiver in ready:
            self._wake_receiver.recv()
        # Cleared before the queues are emptied: what comes after that wakes this thread again.
        self._signalled = False
        for rank in self._ranks:
            self._publish_queued(rank)
            replays = rank.replays
            if replays is not None:
                if replays.socket in ready:
                    replays.take_request()
                replays.go_on()

    def _publish_queued(self, rank: _Rank) -> None:
        assert rank.publish_socket is not None
        for _ in range(len(rank.queue)):
            batch = rank.queue.popleft()
            try:
                payload = self._encoder.encode(batch)
                # A PUB socket never waits: for a subscriber at its high-water mark the message is dropped.
                rank.publish_socket.send_multipart([self._topic, sequence_bytes(batch.sequence), payload])
            except Exception:
                rank.counts.dropped += 1
                logger.exception("KV events of rank %d could not be published.", rank.dp_rank)
                continue
            if rank.replays is not None:
                rank.replays.buffer.append(batch.sequence, payload)
            rank.counts.published += 1


def _bind(socket: zmq.Socket[bytes], endpoint: str) -> None:
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise ArgumentError(
            f"--kv-events-config: {endpoint} cannot be bound: {error.strerror}. Take another endpoint or end "
            "the program that has it."
        ) from error
