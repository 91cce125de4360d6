"""The lower tiers against a naive model: lists searched from end to end, and exact fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mocker_core.offload.tiers import Load, LowerTiers
from mocker_core.request import BlockIdentity
from tests.factories import make_args
from tests.property.profiles import examples

BLOCK_BYTES = 1_000_000
LINKS = ("g1_to_g2", "g2_to_g3", "g3_to_g2", "g2_to_g1")


class PlainTransfer:
    def __init__(self, link: str, what: Any, size_bytes: int) -> None:
        self.link, self.what, self.left_bytes = link, what, Fraction(size_bytes)


class PlainLoad:
    def __init__(self, host: list[int], disk: list[int]) -> None:
        self.host, self.disk, self.parts = host, disk, 0


class PlainTiers:
    """Oldest first in `g2` and `g3`. A block that is being read is listed in `reads`, once per reader."""

    def __init__(self, g2_blocks: int, g3_blocks: int, gbps: dict[str, float]) -> None:
        self.sizes = {"g2": g2_blocks, "g3": g3_blocks}
        self.g2: list[int] = []
        self.g3: list[int] = []
        self.reads: dict[str, list[int]] = {"g2": [], "g3": []}
        self.gbps = {link: Fraction(value) for link, value in gbps.items()}
        self.transfers: list[PlainTransfer] = []
        self.now_ms = Fraction(0)
        self.freed = 0
        self.loaded: list[PlainLoad] = []

    def on_link(self, link: str) -> list[PlainTransfer]:
        return [transfer for transfer in self.transfers if transfer.link == link]

    def speed(self, transfer: PlainTransfer) -> Fraction:
        return self.gbps[transfer.link] * 1_000_000 / len(self.on_link(transfer.link))

    def end_ms(self, transfer: PlainTransfer) -> Fraction:
        if self.gbps[transfer.link] <= 0:
            return self.now_ms
        return self.now_ms + transfer.left_bytes / self.speed(transfer)

    def deadline_ms(self) -> Fraction | None:
        return min((self.end_ms(transfer) for transfer in self.transfers), default=None)

    def send(self, link: str, what: Any, blocks: int) -> None:
        self.transfers.append(PlainTransfer(link, what, blocks * BLOCK_BYTES))

    def copy_out(self, identity: int) -> None:
        self.send("g1_to_g2", identity, 1)

    def start_load(self, identities: list[int]) -> PlainLoad:
        host = [identity for identity in identities if identity in self.g2]
        load = PlainLoad(host, [identity for identity in identities if identity not in host])
        self.read("g2", host)
        if host:
            load.parts += 1
            self.send("g2_to_g1", load, len(host))
        if load.disk:
            self.read("g3", load.disk)
            load.parts += 1
            self.send("g3_to_g2", load, len(load.disk))
        return load

    def read(self, tier: str, identities: list[int]) -> None:
        blocks: list[int] = getattr(self, tier)
        for identity in reversed(identities):
            blocks.remove(identity)
            blocks.append(identity)
            self.reads[tier].append(identity)

    def cancel_load(self, load: PlainLoad) -> None:
        self.transfers = [transfer for transfer in self.transfers if transfer.what is not load]
        self.stop_reading(load)

    def stop_reading(self, load: PlainLoad) -> None:
        for tier, identities in (("g2", load.host), ("g3", load.disk)):
            for identity in identities:
                self.reads[tier].remove(identity)
        load.host, load.disk = [], []

    def advance(self, now_ms: Fraction) -> None:
        while (deadline_ms := self.deadline_ms()) is not None and deadline_ms <= now_ms:
            due = [transfer for transfer in self.transfers if self.end_ms(transfer) == deadline_ms]
            self.move_to(deadline_ms)
            for link in LINKS:
                for transfer in due:
                    if transfer.link == link:
                        self.transfers.remove(transfer)
                        self.end(transfer)
        self.move_to(now_ms)

    def move_to(self, now_ms: Fraction) -> None:
        speeds = [(transfer, self.speed(transfer)) for transfer in self.transfers]
        for transfer, speed in speeds:
            transfer.left_bytes -= max(speed, Fraction(0)) * (now_ms - self.now_ms)
        self.now_ms = now_ms

    def end(self, transfer: PlainTransfer) -> None:
        what = transfer.what
        if transfer.link == "g1_to_g2":
            self.freed += 1
            if what in self.g2:
                self.g2.remove(what)
                self.g2.append(what)
            else:
                self.store("g2", what)
        elif transfer.link == "g2_to_g3":
            self.store("g3", what)
        elif transfer.link == "g3_to_g2":
            disk, what.disk = what.disk, []
            for identity in disk:
                self.reads["g3"].remove(identity)
            for identity in reversed(disk):
                if identity not in self.g2:
                    self.store("g2", identity)
            staged = [identity for identity in disk if identity in self.g2]
            self.read("g2", staged)
            what.host += staged
            self.send("g2_to_g1", what, len(disk))
        else:
            what.parts -= 1
            if not what.parts:
                self.stop_reading(what)
                self.loaded.append(what)

    def store(self, tier: str, identity: int) -> None:
        blocks: list[int] = getattr(self, tier)
        blocks.append(identity)
        if len(blocks) > self.sizes[tier]:
            old = blocks[:-1]
            victim = next((block for block in old if block not in self.reads[tier]), identity)
            blocks.remove(victim)
            if tier == "g2":
                self.demote(victim)

    def demote(self, identity: int) -> None:
        on_the_way = [transfer.what for transfer in self.on_link("g2_to_g3")]
        if not self.sizes["g3"] or identity in on_the_way:
            return
        if identity in self.g3:
            self.g3.remove(identity)
            self.g3.append(identity)
        else:
            self.send("g2_to_g3", identity, 1)


class Pair:
    """Does the same to both and compares all of what can be seen."""

    def __init__(self, g2_blocks: int, g3_blocks: int, gbps: dict[str, float]) -> None:
        args = make_args(
            num_g2_blocks=g2_blocks,
            num_g3_blocks=g3_blocks,
            kv_bytes_per_token=BLOCK_BYTES // 4,
            **{f"bandwidth_{link}_gbps": value for link, value in gbps.items()},
        )
        self.real = LowerTiers(args)
        self.plain = PlainTiers(g2_blocks, g3_blocks, gbps)
        self.now_ms = 0.0
        self.loads: list[tuple[Load, PlainLoad]] = []

    def tick(self, now_ms: float) -> None:
        self.now_ms = now_ms
        self.plain.freed, self.plain.loaded = 0, []
        ended = self.real.tick(now_ms)
        # The real one takes what is due within its slack.
        slack = Fraction(now_ms) + Fraction(1, 10**9)
        deadline_ms = self.plain.deadline_ms()
        while deadline_ms is not None and deadline_ms <= slack:
            self.plain.advance(deadline_ms)
            deadline_ms = self.plain.deadline_ms()
        self.plain.advance(max(Fraction(now_ms), self.plain.now_ms))
        assert ended.freed_slots == self.plain.freed
        plain_of = dict(self.loads)
        assert [plain_of[load] for load in ended.loaded] == self.plain.loaded
        self.loads = [pair for pair in self.loads if pair[0] not in ended.loaded]
        self.compare()

    def compare(self) -> None:
        real, plain = self.real, self.plain
        assert list(real.g2.identities()) == plain.g2
        assert (list(real.g3.identities()) if real.g3 else []) == plain.g3
        assert list(real.copying()) == [transfer.what for transfer in plain.on_link("g1_to_g2")]
        assert list(real.demoting()) == [transfer.what for transfer in plain.on_link("g2_to_g3")]
        deadline_ms = plain.deadline_ms()
        if deadline_ms is None:
            assert real.next_deadline_ms() is None
        else:
            assert real.next_deadline_ms() == pytest.approx(float(deadline_ms), abs=1e-7)

    def everywhere(self) -> set[int]:
        on_the_way = {*self.real.copying(), *self.real.demoting()}
        return on_the_way | {*self.real.g2.identities(), *(self.real.g3.identities() if self.real.g3 else ())}


# Dyadic: a float's rounding then never decides which of two transfers ends first.
GBPS = st.sampled_from([0.0, 0.25, 1.0, 2.0, 8.0])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("evict"), st.integers(1, 9)),
        st.tuples(st.just("evict"), st.integers(1, 9)),
        st.tuples(st.just("load"), st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True)),
        st.tuples(st.just("cancel"), st.integers(0, 5)),
        st.tuples(st.just("wait"), st.sampled_from([0.25, 0.5, 1.0, 3.0, 20.0])),
        st.tuples(st.just("deadline"), st.none()),
    ),
    max_size=40,
)


@examples(150)
@given(
    g2_blocks=st.integers(1, 5),
    g3_blocks=st.sampled_from([0, 1, 2, 6]),
    gbps=st.fixed_dictionaries(dict.fromkeys(LINKS, GBPS)),
    steps=STEPS,
)
def test_tiers_equal_the_naive_model(
    g2_blocks: int, g3_blocks: int, gbps: dict[str, float], steps: list[tuple[str, Any]]
) -> None:
    pair = Pair(g2_blocks, g3_blocks, gbps)
    for what, value in steps:
        take_step(pair, what, value)
        pair.compare()
    while (deadline_ms := pair.real.next_deadline_ms()) is not None:
        pair.tick(deadline_ms)
    assert not pair.loads, "a load never arrived"
    assert not pair.plain.reads["g2"]
    assert not pair.plain.reads["g3"]
    stats = pair.real.stats(parked_requests=0, swap_ins_total=0)
    assert (stats.transfers_active, stats.g2_blocks_used, stats.g3_blocks_used) == (
        0,
        len(pair.plain.g2),
        len(pair.plain.g3),
    )


def take_step(pair: Pair, what: str, value: Any) -> None:
    real, plain = pair.real, pair.plain
    if what == "evict":
        identity = BlockIdentity(value)
        if not real.in_g2_or_on_the_way(identity):
            real.copy_out(identity, pair.now_ms)
            plain.copy_out(identity)
        else:
            real.touch(identity)
            if identity in plain.g2:
                plain.g2.remove(identity)
                plain.g2.append(identity)
    elif what == "load":
        found = [BlockIdentity(number) for number in value if real.is_findable(BlockIdentity(number))]
        if found:
            pair.loads.append((real.start_load(found, pair.now_ms), plain.start_load(list(found))))
    elif what == "cancel":
        if pair.loads:
            load, plain_load = pair.loads.pop(value % len(pair.loads))
            real.cancel_load(load, pair.now_ms)
            plain.cancel_load(plain_load)
    elif what == "wait":
        pair.tick(pair.now_ms + value)
    elif (deadline_ms := real.next_deadline_ms()) is not None:
        pair.tick(max(deadline_ms, pair.now_ms))


@examples(60)
@given(steps=STEPS, gbps=st.fixed_dictionaries(dict.fromkeys(LINKS, GBPS)))
def test_nothing_is_lost_while_there_is_room_below(
    steps: list[tuple[str, Any]], gbps: dict[str, float]
) -> None:
    pair = Pair(2, 50, gbps)
    given_up: set[int] = set()
    for what, value in steps:
        take_step(pair, what, value)
        if what == "evict":
            given_up.add(value)
        reading = {identity for load, _ in pair.loads for identity in load.disk}
        assert given_up == pair.everywhere() | (reading & given_up)
