"""`MockEngine`: the live engine as the app sees it: start, submit, cancel, command, metrics, stop.

Owns the ranks, their one owner task, the choice of a rank and the engine's state. Knows nothing of
HTTP; what ranks publish goes to the `EngineListener`.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TypeVar

from mocker_core.commands import (
    ActivateDestination,
    Applied,
    CancelDestination,
    CancelRequest,
    CancelSource,
    CommandEffects,
    Noop,
    ReleaseSource,
    SchedulerCommand,
)
from mocker_core.engine.core import EngineCore
from mocker_core.engine.pricing import Pricing
from mocker_core.engine_args import MockEngineArgs
from mocker_core.errors import EngineDeadError, RequestError, WrongWorkerTypeError
from mocker_core.live.boundary import RankContext, RankPorts
from mocker_core.live.channels import SHUTDOWN, Cancellation, CommandEnvelope, CoreCall, Reply
from mocker_core.live.clock import Clock, WallClock
from mocker_core.live.live_ids import LiveIds, brought_request
from mocker_core.live.plan import PassPlan, RankStats
from mocker_core.live.precise_wait import Sleeper
from mocker_core.live.protocols import EngineListener, LiveCore
from mocker_core.live.publisher import LiveEffectsPublisher, PublishedEffect
from mocker_core.live.rank_loop import RankLoop
from mocker_core.metrics import MockerMetrics
from mocker_core.request import DirectRequest, RequestId

logger = logging.getLogger(__name__)

T = TypeVar("T")

CoreFactory = Callable[[MockEngineArgs, int], LiveCore]

# How long passes may run without a turn for the event loop while behind the plan. Longer makes
# throughput a little better and every other answer of the server slower by as much.
SLICE_MS = 2.0


class EngineState(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DEAD = "dead"


class _Status:
    """State shared by the engine and its owner task, which must not keep the engine alive."""

    def __init__(self) -> None:
        self.state = EngineState.STARTING
        self.dead_reason: str | None = None

    def die(self, reason: str) -> None:
        """The first reason stands."""
        if self.state is not EngineState.DEAD:
            self.state = EngineState.DEAD
            self.dead_reason = reason


class MockEngine:
    """`dp_size` ranks, each with a core, a loop task and a KV pool of its own. Lives on one event loop.

    `core_factory`, `slice_ms` and `effect_log` (one list for all ranks) are for tests and benchmarks.
    Dropping the last reference without `stop` shuts the loops down as well.
    """

    def __init__(
        self,
        args: MockEngineArgs,
        listener: EngineListener,
        *,
        clock: Clock | None = None,
        core_factory: CoreFactory = EngineCore,
        slice_ms: float = SLICE_MS,
        effect_log: list[PublishedEffect] | None = None,
    ) -> None:
        self.args = args
        self._listener = listener
        self._clock = WallClock() if clock is None else clock
        self._core_factory = core_factory
        self._slice_ms = slice_ms
        self._effect_log = effect_log
        self._status = _Status()
        self._ids = LiveIds(args.dp_size)
        self._ranks: list[RankLoop] = []
        self._owner: asyncio.Task[None] | None = None
        self._starting: Sleeper | None = None

    @property
    def state(self) -> EngineState:
        return self._status.state

    @property
    def dead_reason(self) -> str | None:
        """Why the engine is DEAD, as one sentence; None while it is not."""
        return self._status.dead_reason

    async def start(self) -> None:
        """Wait out startup_time (s) and start one loop per rank; READY when it returns.

        Raises EngineDeadError if the engine was stopped meanwhile or before.
        """
        if self._owner is not None or self._starting is not None:
            raise RuntimeError("This engine was started already; make a new one instead.")
        self._check_not_dead()
        self._starting = Sleeper(self._clock.new_timer)
        try:
            if self.args.startup_time > 0:
                await self._starting.wait(SHUTDOWN, self.now_ms() + self.args.startup_time * 1000.0)
        finally:
            self._starting.close()
        self._check_not_dead()
        self._ranks = [self._make_rank(rank) for rank in range(self.args.dp_size)]
        loop = asyncio.get_running_loop()
        self._owner = loop.create_task(_own(self._ranks, self._status), name="mock-engine")
        # A callback, not a `finally` in the task: one cancelled before its first step never gets there.
        self._owner.add_done_callback(partial(_close_all, self._ranks, self._status))
        weakref.finalize(self, _abandon, loop, self._ranks).atexit = False
        self._status.state = EngineState.READY

    async def stop(self) -> None:
        """Shut every loop down. Each unfinished request gets `on_dead`, each waiting caller an answer."""
        self._status.die("The engine was stopped.")
        if self._starting is not None:
            self._starting.notify(SHUTDOWN)
        for rank in self._ranks:
            rank.context.ports.shut_down()
        if self._owner is not None:
            await asyncio.wait([self._owner])

    def submit(self, request: DirectRequest, dp_rank: int | None = None) -> int:
        """Send a request to a rank (the given one, the request's own, or the least loaded); returns the rank.

        Raises EngineDeadError, DuplicateIdError, or RequestError for a request no rank can take.
        """
        self._check_ready()
        request.check_lengths()
        rank = self._choose_rank(request.dp_rank if dp_rank is None else dp_rank)
        self._ids.submit(request.request_id, rank)
        self._ranks[rank].context.ports.requests.put(request, self._clock.now_ms())
        return rank

    def cancel_soon(self, request_id: RequestId) -> None:
        """End a request whose client went away. Never raises; an unknown id is no error."""
        rank = self._ids.rank_of(request_id)
        if rank is not None and self.state is EngineState.READY:
            self._ranks[rank].context.ports.cancellations.put(Cancellation(request_id))

    async def cancel(self, request_id: RequestId) -> Applied | Noop:
        """End a request now, whatever it waits for; Noop if it is unknown or ended.

        No output of it is published after the answer.
        """
        self._check_ready()
        rank = self._ids.rank_of(request_id)
        if rank is None:
            return Noop()
        reply: Reply[Applied | Noop] = Reply()
        self._ranks[rank].context.ports.cancellations.put(Cancellation(request_id, reply))
        return await reply.receive()

    async def command(self, command: SchedulerCommand, dp_rank: int | None = None) -> CommandEffects:
        """Send a command to its rank and wait for its reply; waits as well while the channel is full.

        Raises WrongWorkerTypeError on an aggregated worker, DuplicateIdError, RequestError, EngineDeadError.
        """
        self._check_ready()
        if not self.args.controls_enabled:
            raise WrongWorkerTypeError(
                f"{type(command).__name__} needs a prefill or decode worker and this one is aggregated; "
                "start the server with --disaggregation-mode prefill or --disaggregation-mode decode."
            )
        rank = self._rank_for(command, dp_rank)
        channel = self._ranks[rank].context.ports.commands
        reply: Reply[CommandEffects] = Reply()
        envelope = CommandEnvelope(command, self._clock.now_ms(), reply)
        self._ids.claim(command, rank)
        try:
            await channel.send(envelope)
        except asyncio.CancelledError:
            reply.abandon()
            if channel.withdraw(envelope):
                self._ids.unclaim(command)
            raise
        return await reply.receive()

    async def cancel_all(self) -> None:
        """End every request of every rank now, held sources and destinations among them."""
        self._check_ready()
        await asyncio.gather(*[self.cancel(request_id) for request_id in self._ids.accepted()])

    async def call_core(self, dp_rank: int, act: Callable[[LiveCore, float], T]) -> T:
        """Let a rank's own task run `act(core, now_ms)`, soon and even in mid-pass; returns its value.

        `act` must not await or keep the core. Raises EngineDeadError, and what MockerError `act` raises.
        """
        self._check_ready()
        self._check_rank(dp_rank)
        reply: Reply[T] = Reply()
        self._ranks[dp_rank].context.ports.cancellations.put(CoreCall(act, reply))
        return await reply.receive()

    async def reprice(self, changes: Mapping[str, object]) -> None:
        """Change speed-ups or the timing model (engine arguments by name) from each rank's next pass on.

        Raises ArgumentError for a wrong value; then nothing changed.
        """
        self._check_ready()
        args = self.args.with_changes(changes)
        # Off the loop: a timing model may read a file.
        pricings = await asyncio.to_thread(lambda: [Pricing(args, rank) for rank in range(args.dp_size)])
        for rank, pricing in enumerate(pricings):
            await self.call_core(rank, partial(_reprice, pricing))
        self.args = args

    async def pause(self, *, drain: bool = False) -> bool:
        """Run no further pass and let new requests wait; with `drain` only once those received are done.

        Commands, cancellations and calls go on. Harmless when repeated. False: resumed before it was drained.
        """
        self._check_ready()
        if drain:
            draining = [rank.context.ports.gate.drain() for rank in self._ranks]
            return all(await asyncio.gather(*[reply.receive() for reply in draining]))
        for rank in self._ranks:
            rank.context.ports.gate.shut()
        return True

    def resume(self) -> None:
        """End a pause, drained or not yet; what waited goes on."""
        self._check_ready()
        for rank in self._ranks:
            rank.context.ports.gate.open()

    def metrics(self, dp_rank: int) -> MockerMetrics:
        """The latest published metrics of a rank."""
        self._check_rank(dp_rank)
        if not self._ranks:
            return MockerMetrics(dp_rank, 0, self.args.num_gpu_blocks, 0.0, 0, 0, 0)
        return self._ranks[dp_rank].context.publisher.latest_metrics

    def rank_stats(self, dp_rank: int) -> RankStats:
        """How well a rank's loop keeps its plan."""
        self._check_rank(dp_rank)
        return self._ranks[dp_rank].context.plan.stats() if self._ranks else RankStats()

    def now_ms(self) -> float:
        """Engine time of the clock; planned times of passes are on the same scale."""
        return self._clock.now_ms()

    def _make_rank(self, dp_rank: int) -> RankLoop:
        args = self.args
        core = self._core_factory(args, dp_rank)
        ports = RankPorts(self._clock, args.handoff_capacity)
        publisher = LiveEffectsPublisher(
            dp_rank, core, self._listener, self._ids, ports.lifecycle, self._effect_log
        )
        plan = PassPlan(max_catch_up_ms=args.max_catch_up_ms, slice_ms=self._slice_ms)
        context = RankContext(
            dp_rank, core, ports, publisher, plan, self._clock, self._ids, args.controls_enabled
        )
        return RankLoop(context, self._listener)

    def _rank_for(self, command: SchedulerCommand, dp_rank: int | None) -> int:
        """Where a command goes: a new request by choice, anything else to the rank that has its id."""
        request = brought_request(command)
        if request is not None:
            return self._choose_rank(request.dp_rank if dp_rank is None else dp_rank)
        rank: int | None = None
        match command:
            case CancelRequest(request_id):
                rank = self._ids.rank_of(request_id)
            case (
                ReleaseSource(handoff_id)
                | CancelSource(handoff_id)
                | ActivateDestination(handoff_id)
                | CancelDestination(handoff_id)
            ):
                rank = self._ids.rank_of_handoff(handoff_id)
        if dp_rank is not None:
            self._check_rank(dp_rank)
        # An unknown id is a Noop, wherever it is asked.
        return rank if rank is not None else dp_rank or 0

    def _choose_rank(self, dp_rank: int | None) -> int:
        if dp_rank is None:
            return self._ids.least_loaded()
        self._check_rank(dp_rank)
        return dp_rank

    def _check_rank(self, dp_rank: int) -> None:
        if not 0 <= dp_rank < self.args.dp_size:
            raise RequestError(
                f"dp_rank is {dp_rank}; this server has the ranks 0 to {self.args.dp_size - 1}."
            )

    def _check_ready(self) -> None:
        self._check_not_dead()
        if self.state is not EngineState.READY:
            raise EngineDeadError("The engine is still starting; wait until /health answers 200.")

    def _check_not_dead(self) -> None:
        if self.state is EngineState.DEAD:
            raise EngineDeadError(f"The engine is dead and must be restarted. {self.dead_reason}")


async def _own(ranks: Sequence[RankLoop], status: _Status) -> None:
    """Own every task of the engine: one that fails ends them all."""
    try:
        async with asyncio.TaskGroup() as group:
            for rank in ranks:
                group.create_task(_guard(rank, rank.run, status))
                group.create_task(_guard(rank, rank.read_lifecycle, status))
    except* Exception:
        pass  # each was logged and gave its reason in _guard


async def _guard(rank: RankLoop, work: Callable[[], Awaitable[None]], status: _Status) -> None:
    try:
        await work()
    except Exception as error:
        dp_rank = rank.context.dp_rank
        status.die(f"The scheduler loop of rank {dp_rank} failed: {type(error).__name__}: {error}.")
        logger.exception("The scheduler loop of rank %d failed", dp_rank)
        raise


def _close_all(ranks: Sequence[RankLoop], status: _Status, owner: asyncio.Task[None]) -> None:
    """Every task of the engine has ended: nobody may be left waiting."""
    status.die("The engine's task was cancelled.")
    for rank in ranks:
        try:
            rank.close(status.dead_reason or "")
        except Exception:
            logger.exception("The listener failed while rank %d was closed", rank.context.dp_rank)


def _abandon(loop: asyncio.AbstractEventLoop, ranks: Sequence[RankLoop]) -> None:
    """The engine was dropped: shut its loops down (a garbage collection may run this in any thread)."""
    if loop.is_closed():
        return
    for rank in ranks:
        loop.call_soon_threadsafe(rank.context.ports.shut_down)


def _reprice(pricing: Pricing, core: LiveCore, now_ms: float) -> None:
    core.reprice(pricing)
