"""The ways in and out of one rank's loop: requests, commands, cancellations and calls, lifecycle events.

Every channel belongs to one event loop. The rank's side is synchronous (look, take, try_send); only
the other side may await. Knows nothing of passes.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from mocker_core.commands import Applied, CommandEffects, Noop, SchedulerCommand
from mocker_core.events import SchedulerLifecycleEvent
from mocker_core.live.protocols import LiveCore
from mocker_core.request import DirectRequest, RequestId

# What a rank's loop can wait for. Plain ints: an IntFlag's operators cost a microsecond each.
SHUTDOWN: Final = 1
CANCELLATION: Final = 2
COMMAND: Final = 4
REQUEST: Final = 8
LIFECYCLE_SPACE: Final = 16
GATE: Final = 32

T = TypeVar("T")


class Reply(Generic[T]):
    """One answer for one caller. A caller that went away is no error; a second answer is ignored."""

    __slots__ = ("_future",)

    def __init__(self) -> None:
        self._future: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def send(self, value: T) -> None:
        if not self._future.done():
            self._future.set_result(value)

    def fail(self, error: Exception) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    def abandon(self) -> None:
        """The caller won't wait for the answer any more."""
        self._future.cancel()

    async def receive(self) -> T:
        return await self._future


class RequestIntake:
    """Requests on their way to a rank, unbounded, in order of receipt; each knows when it was received."""

    __slots__ = ("_notify", "_waiting")

    def __init__(self, notify: Callable[[int], None]) -> None:
        self._notify = notify
        self._waiting: OrderedDict[RequestId, tuple[float, DirectRequest]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, request: DirectRequest, received_ms: float) -> None:
        self._waiting[request.request_id] = (received_ms, request)
        self._notify(REQUEST)

    def first_received_ms(self) -> float | None:
        """When the oldest one was received; None if there is none."""
        for received_ms, _ in self._waiting.values():
            return received_ms
        return None

    def take(self) -> DirectRequest:
        """The oldest one. Raises KeyError if there is none."""
        return self._waiting.popitem(last=False)[1][1]

    def withdraw(self, request_id: RequestId) -> bool:
        return self._waiting.pop(request_id, None) is not None

    def clear(self) -> None:
        self._waiting.clear()


@dataclass(frozen=True, slots=True)
class Cancellation:
    """A request that must end now; `reply` is None where nobody asked what came of it."""

    request_id: RequestId
    reply: Reply[Applied | Noop] | None = None


@dataclass(frozen=True, slots=True)
class CoreCall:
    """Something to do with the core, which only its own task may touch: `act(core, now_ms)`.

    It may come in mid-pass, when that pass is decided but not published. A MockerError goes to the caller.
    """

    act: Callable[[LiveCore, float], object]
    reply: Reply[Any]


class CancellationIntake:
    """Cancellations and calls on their way to a rank, unbounded; taken in every wait of its loop."""

    __slots__ = ("_notify", "_waiting")

    def __init__(self, notify: Callable[[int], None]) -> None:
        self._notify = notify
        self._waiting: deque[Cancellation | CoreCall] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, cancellation: Cancellation | CoreCall) -> None:
        self._waiting.append(cancellation)
        self._notify(CANCELLATION)

    def take(self) -> Cancellation | CoreCall:
        return self._waiting.popleft()


@dataclass(frozen=True, slots=True)
class CommandEnvelope:
    """A command, when it was sent (ms), and where its answer goes."""

    command: SchedulerCommand
    received_ms: float
    reply: Reply[CommandEffects]


class CommandChannel:
    """Commands on their way to a rank: bounded, first in first out. While it is full, `send` waits."""

    __slots__ = ("_capacity", "_closed", "_items", "_notify", "_senders")

    def __init__(self, capacity: int, notify: Callable[[int], None]) -> None:
        self._capacity = capacity
        self._notify = notify
        self._items: deque[CommandEnvelope] = deque()
        self._senders: deque[tuple[asyncio.Future[None], CommandEnvelope]] = deque()
        self._closed: Exception | None = None

    def __len__(self) -> int:
        return len(self._items)

    async def send(self, envelope: CommandEnvelope) -> None:
        """Returns once the channel holds it. A caller cancelled in here must `withdraw` it.

        Raises the error that the channel was closed with.
        """
        if self._closed is not None:
            raise self._closed
        if len(self._items) < self._capacity:  # then nobody waits: take() lets one in at once
            self._items.append(envelope)
            self._notify(COMMAND)
            return
        entry = (asyncio.get_running_loop().create_future(), envelope)
        self._senders.append(entry)
        await entry[0]

    def withdraw(self, envelope: CommandEnvelope) -> bool:
        """For a cancelled sender: True if its command still stood outside, and now never gets in."""
        for entry in self._senders:
            if entry[1] is envelope:
                self._senders.remove(entry)
                return True
        return False

    def first_received_ms(self) -> float | None:
        return self._items[0].received_ms if self._items else None

    def take(self) -> CommandEnvelope:
        """The oldest one; lets the longest waiting sender in. Raises IndexError if there is none."""
        envelope = self._items.popleft()
        while self._senders:
            sender, waiting = self._senders.popleft()
            if not sender.done():
                self._items.append(waiting)
                sender.set_result(None)
                break
        return envelope

    def close(self, error: Exception) -> list[CommandEnvelope]:
        """Refuse all further sends with `error`; returns what was never taken."""
        self._closed = error
        left = list(self._items)
        self._items.clear()
        for sender, _ in self._senders:
            if not sender.done():
                sender.set_exception(error)
        self._senders.clear()
        return left


class LifecycleChannel:
    """Lifecycle events on their way out: bounded, one reader. A full channel makes the loop wait."""

    __slots__ = ("_capacity", "_closed", "_items", "_notify", "_reader")

    def __init__(self, capacity: int, notify: Callable[[int], None]) -> None:
        self._capacity = capacity
        self._notify = notify
        self._items: deque[SchedulerLifecycleEvent] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    def try_send(self, event: SchedulerLifecycleEvent) -> bool:
        """False if it is full; LIFECYCLE_SPACE is notified when the reader has taken one."""
        if len(self._items) >= self._capacity:
            return False
        self._items.append(event)
        self._wake_reader()
        return True

    async def receive(self) -> SchedulerLifecycleEvent | None:
        """The oldest event; None once the channel is closed and empty."""
        while not self._items:
            if self._closed:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        event = self._items.popleft()
        self._notify(LIFECYCLE_SPACE)
        return event

    def close(self) -> None:
        self._closed = True
        self._wake_reader()

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
