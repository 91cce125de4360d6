"""Replays: the newest messages of one rank, kept, and sent again to whoever asks, then the end marker.

Owns the ROUTER socket and the protocol on it. Runs in the publisher's thread and never waits: a client that
does not take its messages keeps only its place, not the messages.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import zmq

from app.kv_events.wire import END_OF_REPLAY, sequence_bytes

logger = logging.getLogger("mocker.kv_events")

# Most bytes of payloads that one rank keeps for replays, besides buffer_steps messages.
REPLAY_BYTES = 256_000_000
# Replayed messages between two looks at the queue of new events.
_REPLAYS_AT_ONCE = 64
# Replays going on at once; a further request pushes out the oldest.
_MOST_REPLAYS = 64
# A client that takes nothing for so long has gone away.
_GIVE_UP_S = 30.0


@dataclass(slots=True)
class PublishCounts:
    """Of one rank, in messages. `dropped`: there was no room in the queue, or sending failed."""

    published: int = 0
    dropped: int = 0
    replayed: int = 0


class ReplayBuffer:
    """The newest messages of one rank: at most `steps` of them and about `most_bytes` of payload."""

    def __init__(self, steps: int, most_bytes: int = REPLAY_BYTES) -> None:
        self._steps = steps
        self._most_bytes = most_bytes
        self._bytes = 0
        self._messages: deque[tuple[int, bytes]] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def last_sequence(self) -> int:
        """Of the newest message; -1 if there is none."""
        return self._messages[-1][0] if self._messages else -1

    def append(self, sequence: int, payload: bytes) -> None:
        messages = self._messages
        messages.append((sequence, payload))
        self._bytes += len(payload)
        while messages and (len(messages) > self._steps or self._bytes > self._most_bytes):
            self._bytes -= len(messages.popleft()[1])

    def between(self, first: int, last: int, limit: int) -> list[tuple[int, bytes]]:
        """Up to `limit` kept messages with numbers of `first` to `last`, oldest first."""
        start = bisect_left(self._messages, (first, b""))
        found = islice(self._messages, start, start + limit)
        return [message for message in found if message[0] <= last]


@dataclass(slots=True)
class _Replay:
    """How far one client's replay has got: it ends with the message that was the newest when asked for."""

    client: bytes
    next_sequence: int
    last_sequence: int
    moved_s: float


class ReplayServer:
    """Answers the replay requests of one rank. `socket` is a bound ROUTER."""

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        counts: PublishCounts,
        buffer_steps: int,
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        # Without this a message for a client whose queue is full, or that is gone, vanishes silently.
        socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        self.socket = socket
        self.buffer = ReplayBuffer(buffer_steps)
        self._counts = counts
        self._now_s = now_s
        self._going: deque[_Replay] = deque()

    @property
    def busy(self) -> bool:
        """Whether a replay is still going on."""
        return bool(self._going)

    def take_request(self) -> None:
        """One request: [client, empty, first sequence number]. Anything else is logged and not answered."""
        frames = self.socket.recv_multipart()
        if len(frames) != 3 or frames[1] or len(frames[2]) != 8:
            logger.warning(
                "A replay request has frames of %s bytes; it must be an empty frame and 8 bytes.",
                [len(frame) for frame in frames[1:]],
            )
            return
        if len(self._going) >= _MOST_REPLAYS:
            self._going.popleft()
        first = int.from_bytes(frames[2], "big")
        self._going.append(_Replay(frames[0], first, self.buffer.last_sequence, self._now_s()))

    def go_on(self) -> None:
        """Send each client some of its messages, and after the last one the end marker."""
        for _ in range(len(self._going)):
            replay = self._going.popleft()
            try:
                if not self._send_some(replay):
                    self._going.append(replay)
            except zmq.Again:
                if self._now_s() - replay.moved_s < _GIVE_UP_S:
                    self._going.append(replay)
            except zmq.ZMQError:
                pass  # the client is gone

    def _send_some(self, replay: _Replay) -> bool:
        """True once the end marker is sent. Raises zmq.Again while the client takes no more."""
        messages = self.buffer.between(replay.next_sequence, replay.last_sequence, _REPLAYS_AT_ONCE)
        for sequence, payload in messages:
            self._send(replay, sequence_bytes(sequence), payload)
            replay.next_sequence = sequence + 1
            self._counts.replayed += 1
        if len(messages) == _REPLAYS_AT_ONCE:
            return False
        self._send(replay, END_OF_REPLAY, b"")
        return True

    def _send(self, replay: _Replay, number: bytes, payload: bytes) -> None:
        self.socket.send_multipart([replay.client, b"", number, payload], zmq.NOBLOCK)
        replay.moved_s = self._now_s()
