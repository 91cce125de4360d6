"""The lower tiers of one rank: G2 (host), G3 (disk) and the four links (engine.md section 8).

Owns what is resident below the device and what is on its way. Works on identities alone: the
device's slots, requests and queues are its caller's. Transfers end in the order of time, each at
its own instant, however coarsely `tick` is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mocker_core.engine_args import MockEngineArgs
from mocker_core.events import StorageTier
from mocker_core.metrics import OffloadStats
from mocker_core.offload.lane import SLACK_MS, Lane, Transfer
from mocker_core.offload.store import TierStore
from mocker_core.request import BlockIdentity


class TierEvents(Protocol):
    """Who is told of changes in the lower tiers. Between `hold` and `let_go` an identity is on a link."""

    def stored_again(self, identity: BlockIdentity, tier: StorageTier) -> None: ...

    def removed(self, identity: BlockIdentity, tier: StorageTier) -> None: ...

    def hold(self, identity: BlockIdentity) -> None: ...

    def let_go(self, identity: BlockIdentity) -> None: ...


class Load:
    """Blocks on their way to the device for one request: those from G2 at once, those from G3 through G2."""

    __slots__ = ("disk", "pinned", "transfers", "under_way")

    def __init__(self, disk: list[BlockIdentity]) -> None:
        self.disk = disk
        self.pinned: list[BlockIdentity] = []  # in G2
        self.transfers: list[tuple[Lane[Load], Transfer[Load]]] = []
        self.under_way = 0


@dataclass(frozen=True, slots=True)
class TierTick:
    """What ended: device slots whose copy to G2 is over, and loads that are on the device entirely."""

    freed_slots: int = 0
    loaded: tuple[Load, ...] = ()


class LowerTiers:
    """G2 and, if there is one, G3. An identity is at most once in each tier and on each way down."""

    def __init__(self, args: MockEngineArgs, events: TierEvents | None = None) -> None:
        assert args.num_g2_blocks and args.kv_bytes_per_token is not None
        self.g2 = TierStore(args.num_g2_blocks)
        self.g3 = TierStore(args.num_g3_blocks) if args.num_g3_blocks else None
        self._block_bytes = args.block_size * args.kv_bytes_per_token
        self._events = events
        self._to_g2: Lane[BlockIdentity] = Lane(args.bandwidth_g1_to_g2_gbps)
        self._to_g3: Lane[BlockIdentity] = Lane(args.bandwidth_g2_to_g3_gbps)
        self._from_g3: Lane[Load] = Lane(args.bandwidth_g3_to_g2_gbps)
        self._from_g2: Lane[Load] = Lane(args.bandwidth_g2_to_g1_gbps)
        self._copying: dict[BlockIdentity, None] = {}
        self._demoting: dict[BlockIdentity, None] = {}

    def in_g2_or_on_the_way(self, identity: BlockIdentity) -> bool:
        """A device copy of it needs no copying down."""
        return identity in self.g2 or identity in self._copying

    def is_findable(self, identity: BlockIdentity) -> bool:
        """Whether a load can bring it back."""
        return identity in self.g2 or (self.g3 is not None and identity in self.g3)

    def copying(self) -> Iterator[BlockIdentity]:
        """Identities on their way from the device to G2."""
        yield from self._copying

    def demoting(self) -> Iterator[BlockIdentity]:
        """Identities on their way from G2 to G3."""
        yield from self._demoting

    def copy_out(self, identity: BlockIdentity, now_ms: float) -> None:
        """Start copying a device block down; `tick` reports its slot when that has ended."""
        assert not self.in_g2_or_on_the_way(identity), f"block {identity} would be copied twice"
        if self._events is not None:
            self._events.hold(identity)
        self._copying[identity] = None
        self._to_g2.start(identity, self._block_bytes, now_ms)

    def touch(self, identity: BlockIdentity) -> None:
        """The device gave up a block that is here already: the last one to go, as if copied just now."""
        if identity in self.g2:
            self.g2.touch(identity)

    def start_load(self, identities: Sequence[BlockIdentity], now_ms: float) -> Load:
        """Bring findable identities to the device; they stay pinned below until they have arrived."""
        assert identities
        host = [identity for identity in identities if identity in self.g2]
        load = Load([identity for identity in identities if identity not in self.g2])
        self._pin(load, host)
        if host:
            self._send(self._from_g2, load, len(host), now_ms)
        if load.disk:
            assert self.g3 is not None
            for identity in reversed(load.disk):
                self.g3.touch(identity)
                self.g3.pin(identity)
            self._send(self._from_g3, load, len(load.disk), now_ms)
        return load

    def cancel_load(self, load: Load, now_ms: float) -> None:
        """Stop a load; nothing of it stays pinned or under way."""
        for lane, transfer in load.transfers:
            lane.cancel(transfer, now_ms)
        self._unpin_disk(load)
        self._unpin(load)

    def tick(self, now_ms: float) -> TierTick:
        """Let everything happen that is due by `now_ms`."""
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms + SLACK_MS:
            return _NOTHING
        freed = 0
        loaded: list[Load] = []
        while deadline_ms is not None and deadline_ms <= now_ms + SLACK_MS:
            for copy in self._to_g2.tick(deadline_ms):
                self._copied(copy.job, deadline_ms)
                freed += 1
            for demotion in self._to_g3.tick(deadline_ms):
                self._demoted(demotion.job)
            for stage in self._from_g3.tick(deadline_ms):
                self._staged(stage, deadline_ms)
            for arrival in self._from_g2.tick(deadline_ms):
                if self._arrived(arrival):
                    loaded.append(arrival.job)
            deadline_ms = self.next_deadline_ms()
        return TierTick(freed, tuple(loaded))

    def next_deadline_ms(self) -> float | None:
        """When the next transfer ends; None if none is under way."""
        deadline_ms: float | None = None
        for lane in (self._to_g2, self._to_g3, self._from_g3, self._from_g2):
            if lane.active:
                lane_ms = lane.next_deadline_ms()
                if deadline_ms is None or (lane_ms is not None and lane_ms < deadline_ms):
                    deadline_ms = lane_ms
        return deadline_ms

    def clear(self) -> None:
        """Forget every block and drop every transfer. No load may be under way."""
        assert not self._from_g2.active and not self._from_g3.active, "blocks are on their way to the device"
        self.g2.clear()
        if self.g3 is not None:
            self.g3.clear()
        self._to_g2.clear()
        self._to_g3.clear()
        self._copying.clear()
        self._demoting.clear()

    def stats(self, *, parked_requests: int, swap_ins_total: int) -> OffloadStats:
        lanes = (self._to_g2, self._from_g2, self._to_g3, self._from_g3)
        return OffloadStats(
            g2_blocks_used=len(self.g2),
            g2_blocks_total=self.g2.capacity,
            g3_blocks_used=0 if self.g3 is None else len(self.g3),
            g3_blocks_total=0 if self.g3 is None else self.g3.capacity,
            transfers_active=sum(lane.active for lane in lanes),
            g1_to_g2_bytes_total=self._to_g2.bytes_total,
            g2_to_g1_bytes_total=self._from_g2.bytes_total,
            g2_to_g3_bytes_total=self._to_g3.bytes_total,
            g3_to_g2_bytes_total=self._from_g3.bytes_total,
            parked_requests=parked_requests,
            swap_ins_total=swap_ins_total,
        )

    def _copied(self, identity: BlockIdentity, now_ms: float) -> None:
        """A device block has reached G2."""
        del self._copying[identity]
        if identity in self.g2:  # staged from G3 meanwhile
            self.g2.touch(identity)
        else:
            self._store_in_g2(identity, now_ms)
        if self._events is not None:
            self._events.let_go(identity)

    def _store_in_g2(self, identity: BlockIdentity, now_ms: float) -> None:
        """Make it resident; what has to go for it goes down to G3."""
        victim = self.g2.store(identity)
        if victim is not None:
            self._demote(victim, now_ms)
        if self._events is None:
            return
        if victim is not None and victim != identity:
            self._events.removed(victim, StorageTier.HOST)
        if victim != identity:
            self._events.stored_again(identity, StorageTier.HOST)

    def _demote(self, identity: BlockIdentity, now_ms: float) -> None:
        """G2 has no place for it: copy it to G3 unless there is none or it is there already."""
        if self.g3 is None or identity in self._demoting:
            return
        if identity in self.g3:
            self.g3.touch(identity)
            return
        if self._events is not None:
            self._events.hold(identity)
        self._demoting[identity] = None
        self._to_g3.start(identity, self._block_bytes, now_ms)

    def _demoted(self, identity: BlockIdentity) -> None:
        """A block has reached G3; what has to go for it is lost."""
        assert self.g3 is not None
        del self._demoting[identity]
        victim = self.g3.store(identity)
        if self._events is None:
            return
        if victim != identity:
            if victim is not None:
                self._events.removed(victim, StorageTier.DISK)
            self._events.stored_again(identity, StorageTier.DISK)
        self._events.let_go(identity)

    def _staged(self, stage: Transfer[Load], now_ms: float) -> None:
        """A load's blocks from G3 have reached G2: resident there if there is room, and on to the device."""
        load = stage.job
        load.under_way -= 1
        disk = list(load.disk)
        self._unpin_disk(load)
        # Last block first, as the device gives them up: a leaf goes before its parent.
        for identity in reversed(disk):
            if identity not in self.g2:
                self._store_in_g2(identity, now_ms)
        self._pin(load, [identity for identity in disk if identity in self.g2])
        self._send(self._from_g2, load, len(disk), now_ms)

    def _arrived(self, arrival: Transfer[Load]) -> bool:
        """Some of a load's blocks have reached the device; True if those were the last."""
        load = arrival.job
        load.under_way -= 1
        if load.under_way:
            return False
        self._unpin(load)
        return True

    def _send(self, lane: Lane[Load], load: Load, blocks: int, now_ms: float) -> None:
        load.under_way += 1
        load.transfers.append((lane, lane.start(load, blocks * self._block_bytes, now_ms)))

    def _pin(self, load: Load, identities: Sequence[BlockIdentity]) -> None:
        for identity in reversed(identities):
            self.g2.touch(identity)
            self.g2.pin(identity)
        load.pinned += identities

    def _unpin(self, load: Load) -> None:
        for identity in load.pinned:
            self.g2.unpin(identity)
        load.pinned.clear()

    def _unpin_disk(self, load: Load) -> None:
        for identity in load.disk:
            assert self.g3 is not None
            self.g3.unpin(identity)
        load.disk.clear()


_NOTHING = TierTick()
