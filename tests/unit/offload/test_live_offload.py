"""The live loop wakes for transfers: the reference's acceptance case and a swap-in, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from mocker_core.commands import (
    Applied,
    CancelDestination,
    CancelSource,
    DestinationAccepted,
    Noop,
    ReserveDestination,
    SubmitHandoffPrefill,
    Submitted,
)
from mocker_core.engine_args import MockEngineArgs
from mocker_core.events import BlocksStored, DestinationReserved, SourceHeld, StorageTier
from mocker_core.live.engine import MockEngine
from mocker_core.request import HandoffId
from tests.factories import make_request
from tests.harness.virtual_loop import VirtualClock, run_virtual
from tests.live.fakes import RecordingListener
from tests.unit.offload.tier_driver import OFFLOAD, Driver

SOURCE, DESTINATION = HandoffId("source"), HandoffId("destination")
SEED_ARGS: dict[str, Any] = {
    "num_gpu_blocks": 2,
    "block_size": 4,
    "max_num_seqs": 1,
    "worker_type": "decode",
    "speedup_ratio": 1000.0,
    "kv_bytes_per_token": 250_000,
    "num_g2_blocks": 4,
    "bandwidth_g1_to_g2_gbps": 1.0,
    "enable_kv_events": True,
}


class Listener(RecordingListener):
    """Also keeps the KV and lifecycle events with the time at which they came."""

    def __init__(self, now_ms: Callable[[], float]) -> None:
        super().__init__([], now_ms)
        self.host_stored: list[float] = []
        self.told: list[tuple[Any, float]] = []

    def on_kv_events(self, dp_rank: int, events: Any) -> None:
        for event in events:
            if isinstance(event, BlocksStored) and event.tier is StorageTier.HOST:
                self.host_stored += [self.now_ms()] * len(event.blocks)

    def on_lifecycle(self, dp_rank: int, event: Any) -> None:
        self.told.append((event, self.now_ms()))


def run_live(scenario: Callable[[MockEngine, Listener], Awaitable[None]], args: dict[str, Any]) -> Listener:
    async def main() -> Listener:
        clock = VirtualClock()
        listener = Listener(clock.now_ms)
        engine = MockEngine(MockEngineArgs.from_mapping(args), listener, clock=clock)
        await engine.start()
        try:
            await scenario(engine, listener)
        finally:
            await engine.stop()
        return listener

    return run_virtual(main())


async def wait_until(condition: Callable[[], object], within_ms: float = 1000.0) -> None:
    waited_ms = 0.0
    while not condition():
        assert waited_ms < within_ms, f"it did not happen within {within_ms} ms"
        await asyncio.sleep(0.0001)
        waited_ms += 0.1


def test_idle_destination_reservation_wakes_at_offload_deadline() -> None:
    reserved_after_ms: list[float] = []

    async def scenario(engine: MockEngine, listener: Listener) -> None:
        seed = make_request("seed", tokens=(1,) * 4, output=1)
        engine.submit(seed)
        await wait_until(lambda: listener.published_ms.get(seed.request_id))
        held = make_request("held", tokens=(3,) * 3, output=1)
        effects = await engine.command(SubmitHandoffPrefill(SOURCE, held))
        assert effects.result == Submitted(held.request_id)
        await wait_until(lambda: listener.told)
        assert isinstance(listener.told[0][0], SourceHeld)
        assert listener.host_stored == []
        listener.told.clear()

        wanted = make_request("reserved", tokens=(2,) * 4, output=1)
        start_ms = engine.now_ms()
        effects = await engine.command(ReserveDestination(DESTINATION, wanted))
        assert effects.result == DestinationAccepted(wanted.request_id)
        assert effects.lifecycle == ()
        assert listener.told == []
        await wait_until(lambda: listener.told)
        event, at_ms = listener.told.pop()
        assert event == DestinationReserved(DESTINATION, wanted.request_id, 4)
        reserved_after_ms.append(at_ms - start_ms)
        assert len(listener.host_stored) == 1

        effects = await engine.command(CancelDestination(HandoffId("unknown")))
        assert effects.result == Noop()
        assert listener.told == []
        assert len(listener.host_stored) == 1
        for clean_up in (CancelDestination(DESTINATION), CancelSource(SOURCE)):
            assert (await engine.command(clean_up)).result == Applied()
        assert engine.metrics(0).active_decode_blocks == 0

    run_live(scenario, SEED_ARGS)
    # By nothing but the copy's own deadline: 1e6 bytes over 1 GB/s.
    assert reserved_after_ms == [pytest.approx(1.0, abs=1e-6)]


def test_live_and_plain_driver_give_the_same_times() -> None:
    args = OFFLOAD | {"num_gpu_blocks": 5, "block_size": 4, "num_g2_blocks": 20, "speedup_ratio": 10.0}
    args |= {"bandwidth_g1_to_g2_gbps": 0.3, "bandwidth_g2_to_g1_gbps": 0.7, "enable_kv_events": True}
    requests = [
        make_request(f"r{number}", prompt=4 * (2 + number % 3) + 1, start=100 * (number % 3 + 1), output=3)
        for number in range(9)
    ]
    driver = Driver(**args)
    for request in requests:
        driver.receive(request)
    driver.run()
    stats = driver.core.offload_stats()
    assert stats is not None
    assert stats.swap_ins_total > 0

    async def scenario(engine: MockEngine, listener: Listener) -> None:
        for request in requests:
            engine.submit(request)
        await wait_until(lambda: len(listener.published_ms) == len(requests), 10_000.0)
        await asyncio.sleep(1.0)

    listener = run_live(scenario, args)
    for request_id, facts in driver.finished.items():
        assert listener.published_ms[request_id][0] == pytest.approx(facts.first_token_ms, abs=1e-6)
        assert listener.published_ms[request_id][-1] == pytest.approx(facts.last_token_ms, abs=1e-6)
