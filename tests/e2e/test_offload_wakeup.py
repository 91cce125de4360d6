"""An idle engine wakes for a transfer's end on the wall clock, and costs nothing while it waits."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from mocker_core.commands import CancelDestination, CancelSource, ReserveDestination, SubmitHandoffPrefill
from mocker_core.engine_args import MockEngineArgs
from mocker_core.events import BlocksStored, DestinationReserved, SourceHeld, StorageTier
from mocker_core.live.engine import MockEngine
from mocker_core.request import HandoffId
from tests.factories import make_request
from tests.live.fakes import RecordingListener
from tests.unit.offload.test_live_offload import DESTINATION, SEED_ARGS, SOURCE, wait_until

pytestmark = pytest.mark.e2e

IDLE_S = 1.0


class Listener(RecordingListener):
    def __init__(self) -> None:
        super().__init__([])
        self.host_stored = 0
        self.woken = asyncio.Event()

    def on_kv_events(self, dp_rank: int, events: Any) -> None:
        stored = [event for event in events if isinstance(event, BlocksStored)]
        self.host_stored += sum(len(event.blocks) for event in stored if event.tier is StorageTier.HOST)

    def on_lifecycle(self, dp_rank: int, event: Any) -> None:
        self.lifecycle.append(event)
        if isinstance(event, DestinationReserved):
            self.woken.set()


async def reach_the_reservation(engine: MockEngine, listener: Listener) -> None:
    """The acceptance case up to the reservation that must wait for a copy."""
    engine.submit(make_request("seed", tokens=(1,) * 4, output=1))
    await wait_until(lambda: listener.ended, 10_000.0)
    await engine.command(SubmitHandoffPrefill(SOURCE, make_request("held", tokens=(3,) * 3, output=1)))
    await wait_until(lambda: listener.lifecycle, 10_000.0)
    assert isinstance(listener.lifecycle.pop(), SourceHeld)
    reserve = ReserveDestination(DESTINATION, make_request("reserved", tokens=(2,) * 4, output=1))
    effects = await engine.command(reserve)
    assert effects.lifecycle == ()


def test_idle_destination_reservation_wakes_within_a_second() -> None:
    async def main() -> None:
        listener = Listener()
        engine = MockEngine(MockEngineArgs.from_mapping(SEED_ARGS), listener)
        await engine.start()
        try:
            await reach_the_reservation(engine, listener)
            await asyncio.wait_for(listener.woken.wait(), 1.0)
            assert listener.host_stored == 1
            await engine.command(CancelDestination(HandoffId("unknown")))
            assert listener.host_stored == 1
            for clean_up in (CancelDestination(DESTINATION), CancelSource(SOURCE)):
                await engine.command(clean_up)
        finally:
            await engine.stop()

    asyncio.run(main())


def test_waiting_for_a_transfer_costs_no_cpu() -> None:
    async def main() -> float:
        listener = Listener()
        # The copy takes 100 s: all that time the loop has a deadline and nothing to do.
        slow = MockEngineArgs.from_mapping(SEED_ARGS | {"bandwidth_g1_to_g2_gbps": 1e-5})
        engine = MockEngine(slow, listener)
        await engine.start()
        try:
            await reach_the_reservation(engine, listener)
            cpu_s = time.process_time()
            await asyncio.sleep(IDLE_S)
            cpu_s = time.process_time() - cpu_s
            assert not listener.woken.is_set()
            return cpu_s
        finally:
            await engine.stop()

    assert asyncio.run(main()) < 0.02 * IDLE_S
