"""Drives one core in virtual time as a replay does; checks the laws and the events' story after each step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mocker_core.commands import CommandResult, SchedulerCommand
from mocker_core.engine.core import EngineCore
from mocker_core.events import BlocksCleared, BlocksStored, KvEvent, SchedulerLifecycleEvent, StorageTier
from mocker_core.request import BlockIdentity, DirectRequest, RequestId
from mocker_core.sched.output import EnginePassResult, FinishedRequest
from tests.factories import make_core
from tests.harness.invariants import assert_invariants

BLOCK_BYTES = 1_000_000  # one ms alone on a link of 1 GB/s
OFFLOAD: dict[str, Any] = {
    "kv_bytes_per_token": BLOCK_BYTES // 4,
    "num_g2_blocks": 8,
    "bandwidth_g1_to_g2_gbps": 1.0,
    "bandwidth_g2_to_g1_gbps": 1.0,
    "bandwidth_g2_to_g3_gbps": 1.0,
    "bandwidth_g3_to_g2_gbps": 1.0,
    "speedup_ratio": 1e9,
}


class TierMirror:
    """What a consumer of the events believes to be in each tier."""

    def __init__(self) -> None:
        self.resident: dict[StorageTier, set[BlockIdentity]] = {tier: set() for tier in StorageTier}
        self.events: list[KvEvent] = []

    def feed(self, events: Iterable[KvEvent]) -> None:
        for event in events:
            assert not self.events or event.event_id > self.events[-1].event_id
            self.events.append(event)
            if isinstance(event, BlocksCleared):
                for blocks in self.resident.values():
                    blocks.clear()
                continue
            here = self.resident[event.tier]
            if isinstance(event, BlocksStored):
                identities = [block.identity for block in event.blocks]
                assert here.isdisjoint(identities), f"stored twice in {event.tier}"
                here.update(identities)
            else:
                assert here.issuperset(event.identities), f"removed from {event.tier} what was not there"
                here.difference_update(event.identities)

    def stored(self, tier: StorageTier) -> list[BlockIdentity]:
        """Every identity in the order in which it was stored in a tier, as often as it was."""
        stored = [event for event in self.events if isinstance(event, BlocksStored) and event.tier is tier]
        return [block.identity for event in stored for block in event.blocks]


class Driver:
    """A core with offload on, its clock, and what came out of it. Links of 1 GB/s, a block is one ms."""

    def __init__(self, **args: Any) -> None:
        self.core: EngineCore = make_core(**(OFFLOAD | args))
        self.now_ms = 0.0
        self.mirror = TierMirror()
        self.finished: dict[RequestId, FinishedRequest] = {}
        self.lifecycle: list[SchedulerLifecycleEvent] = []
        self.passes: list[EnginePassResult] = []

    @property
    def ops(self) -> Any:
        assert self.core.offload is not None
        return self.core.offload

    def receive(self, *requests: DirectRequest) -> None:
        for request in requests:
            self.core.receive(request)

    def execute_pass(self) -> EnginePassResult:
        """One pass; the clock goes on to its end."""
        result = self.core.execute_pass(self.now_ms)
        self.passes.append(result)
        self.now_ms = result.end_ms
        self.mirror.feed(result.kv_events)
        self.lifecycle += result.lifecycle
        for facts in result.finished:
            assert facts.request_id not in self.finished, "ended twice"
            self.finished[facts.request_id] = facts
        self.check()
        return result

    def advance_to(self, now_ms: float, *, grant: bool = True) -> None:
        self.now_ms = max(self.now_ms, now_ms)
        effects = self.core.advance(self.now_ms, allow_destination_grant=grant)
        self.mirror.feed(effects.kv_events)
        self.lifecycle += effects.lifecycle
        self.check()

    def apply(self, command: SchedulerCommand, *, grant: bool = True) -> CommandResult:
        effects = self.core.apply_command(command, allow_destination_grant=grant, now_ms=self.now_ms)
        self.mirror.feed(effects.kv_events)
        self.lifecycle += effects.lifecycle
        self.check()
        return effects.result

    def cancel(self, request_id: str) -> bool:
        known = self.core.cancel(RequestId(request_id), self.now_ms)
        self.mirror.feed(self.core.take_kv_events())
        self.check()
        return known

    def step(self) -> bool:
        """A pass, or if that does nothing the next deadline; False if nothing is left to happen."""
        if not self.core.is_empty():
            before = self.core.metrics()
            start_ms = self.now_ms
            result = self.execute_pass()
            effects = self.core.retry_destinations(self.now_ms)
            self.mirror.feed(effects.kv_events)
            self.lifecycle += effects.lifecycle
            if result.end_ms > start_ms or result.made_progress(before) or effects.granted:
                return True
        deadline_ms = self.core.next_deadline_ms()
        if deadline_ms is None:
            return False
        self.advance_to(deadline_ms)
        return True

    def run(self, *, most: int = 2000) -> None:
        """Until nothing happens any more by itself."""
        for _ in range(most):
            if not self.step():
                assert self.core.is_empty(), "requests are stuck"
                return
        raise AssertionError(f"still busy after {most} steps")

    def serve(self, *requests: DirectRequest) -> None:
        self.receive(*requests)
        self.run()

    def check(self) -> None:
        """The laws, and that events alone tell what is in each tier."""
        self.mirror.feed(self.core.take_kv_events())
        assert_invariants(self.core)
        tiers = self.ops.tiers
        device = set(self.core.pool.identities())
        host, disk = set(tiers.g2.identities()), set(tiers.g3.identities() if tiers.g3 else ())
        assert len(host) <= tiers.g2.capacity
        assert tiers.g3 is None or len(disk) <= tiers.g3.capacity
        assert len(list(tiers.copying())) == self.core.pool.in_copy_blocks
        expected = {StorageTier.DEVICE: device, StorageTier.HOST: host, StorageTier.DISK: disk}
        assert self.mirror.resident == expected
