"""What /admin/events shows: rings of KV events, forward-pass metrics and lifecycle events, and their JSON.

Owns the rings, the newest FPM of each rank and the shape of one record. Filled by the dispatcher as an
`EngineObserver`; nothing is encoded until somebody reads. Must not know HTTP.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

import orjson

from app.admin.event_ring import EventRing, Gap
from app.dispatch import EngineObserver
from mocker_core.events import (
    BlocksCleared,
    BlocksRemoved,
    BlocksStored,
    DestinationExpired,
    DestinationReserved,
    KvEvent,
    SchedulerLifecycleEvent,
    SourceExpired,
    SourceHeld,
)
from mocker_core.hashing import token_hash
from mocker_core.metrics import ForwardPassMetrics
from mocker_core.request import BlockIdentity

T = TypeVar("T")

KV_EVENTS_KEPT = 8192
# What a KV event weighs: itself and its blocks. Bounds the token ids that are kept alive.
KV_BLOCKS_KEPT = 16384
FPM_KEPT = 4096
LIFECYCLE_KEPT = 4096
# Records written in one go; between two such the event loop gets a turn.
_RECORDS_AT_ONCE = 32

_LIFECYCLE_NAMES: dict[type[object], str] = {
    SourceHeld: "source_held",
    DestinationReserved: "destination_reserved",
    SourceExpired: "source_expired",
    DestinationExpired: "destination_expired",
}


class EventStreams(EngineObserver):
    """The three streams of one server.

    Ids go on where a process started earlier can't have been: they begin at its start, in microseconds.
    """

    def __init__(self, dp_size: int, *, started_at_s: float | None = None) -> None:
        start = time.time() if started_at_s is None else started_at_s
        first_id = int(start * 1e6) + 1
        self.kv: EventRing[tuple[int, KvEvent]] = EventRing(
            KV_EVENTS_KEPT, max_weight=KV_BLOCKS_KEPT, first_id=first_id
        )
        self.fpm: EventRing[ForwardPassMetrics] = EventRing(FPM_KEPT, first_id=first_id)
        self.lifecycle: EventRing[tuple[int, SchedulerLifecycleEvent]] = EventRing(
            LIFECYCLE_KEPT, first_id=first_id
        )
        self.latest_fpm: list[ForwardPassMetrics | None] = [None] * dp_size

    def on_kv_events(self, dp_rank: int, events: Sequence[KvEvent]) -> None:
        push = self.kv.push
        for event in events:
            match event:
                case BlocksStored():
                    weight = 1 + len(event.blocks)
                case BlocksRemoved():
                    weight = 1 + len(event.identities)
                case _:
                    weight = 1
            push((dp_rank, event), weight)

    def on_fpm(self, dp_rank: int, fpm: ForwardPassMetrics) -> None:
        self.latest_fpm[dp_rank] = fpm
        self.fpm.push(fpm)

    def on_lifecycle(self, dp_rank: int, event: SchedulerLifecycleEvent) -> None:
        self.lifecycle.push((dp_rank, event))

    def close(self) -> None:
        """The server ends: every reader gets what is left and then the end of its stream."""
        for ring in (self.kv, self.fpm, self.lifecycle):
            ring.close()

    def latest_fpm_figures(self) -> list[dict[str, Any] | None]:
        """The newest forward-pass snapshot of each rank; None before its first pass."""
        return [None if fpm is None else dataclasses.asdict(fpm) for fpm in self.latest_fpm]


async def sse_records(
    ring: EventRing[T], after_id: int, encode: Callable[[T], tuple[str, dict[str, Any]]]
) -> AsyncIterator[bytes]:
    """The ring's events after `after_id` as SSE records, each with its id, until the ring is closed.

    What the reader missed is a record of its own: `event: gap` with the number of events, null if unknown.
    """
    while True:
        batch = ring.read(after_id, _RECORDS_AT_ONCE)
        records = [] if batch.gap is None else [_gap_record(batch.gap)]
        for event_id, item in enumerate(batch.items, batch.first_id):
            name, body = encode(item)
            records.append(b"id: %d\nevent: %s\ndata: %s\n\n" % (event_id, name.encode(), orjson.dumps(body)))
        after_id = batch.first_id + len(batch.items) - 1
        if records:
            yield b"".join(records)
        if after_id < ring.last_id:
            await asyncio.sleep(0)
            continue
        if ring.closed:
            return
        await ring.wait(after_id)


def kv_body(rank_and_event: tuple[int, KvEvent], *, token_ids: bool = False) -> tuple[str, dict[str, Any]]:
    """Name and body of a KV event. 64-bit hashes are 16 hex digits: JSON numbers of browsers lose bits."""
    dp_rank, event = rank_and_event
    body: dict[str, Any] = {"dp_rank": dp_rank, "event_id": event.event_id}
    match event:
        case BlocksStored():
            body["tier"] = event.tier
            body["parent"] = None if event.parent is None else _hex(event.parent)
            body["blocks"] = [
                _block(block.identity, block.token_ids, token_ids=token_ids) for block in event.blocks
            ]
            return "stored", body
        case BlocksRemoved():
            body["tier"] = event.tier
            body["identities"] = [_hex(identity) for identity in event.identities]
            return "removed", body
        case BlocksCleared():
            return "cleared", body


def fpm_body(fpm: ForwardPassMetrics) -> tuple[str, dict[str, Any]]:
    return "fpm", dataclasses.asdict(fpm)


def lifecycle_body(rank_and_event: tuple[int, SchedulerLifecycleEvent]) -> tuple[str, dict[str, Any]]:
    """Name and body of a lifecycle event; the body has its fields by their names."""
    dp_rank, event = rank_and_event
    return _LIFECYCLE_NAMES[type(event)], {"dp_rank": dp_rank} | dataclasses.asdict(event)


def _gap_record(gap: Gap) -> bytes:
    body = orjson.dumps({"missed": gap.missed, "last_id": gap.last_id})
    return b"id: %d\nevent: gap\ndata: %s\n\n" % (gap.last_id, body)


def _block(identity: BlockIdentity, tokens: Sequence[int] | None, *, token_ids: bool) -> dict[str, Any]:
    block: dict[str, Any] = {
        "identity": _hex(identity),
        "token_hash": None if tokens is None else _hex(token_hash(tokens)),
    }
    if token_ids:
        block["token_ids"] = None if tokens is None else list(tokens)
    return block


def _hex(number: int) -> str:
    return f"{number:016x}"
