from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.admin.event_ring import EventRing
from app.admin.event_streams import KV_BLOCKS_KEPT, KV_EVENTS_KEPT, EventStreams, sse_records
from app.factory import create_app
from app.settings import ServeSettings
from mocker_core.events import (
    BlocksCleared,
    BlocksRemoved,
    BlocksStored,
    DestinationReserved,
    SourceHeld,
    StorageTier,
    StoredBlock,
)
from mocker_core.hashing import token_hash
from mocker_core.metrics import ForwardPassMetrics, LengthStats
from mocker_core.request import BlockIdentity, HandoffId, RequestId
from tests.harness.asgi_stream import AsgiClient, Exchange, serving
from tests.harness.live_server import LiveServer

Record = tuple[int, str, Any]


def records(stream: bytes) -> list[Record]:
    """(id, event, data) of each record; comments are left out."""
    assert b"\r" not in stream, "line ends must be LF"
    found = []
    for record in stream.decode().split("\n\n")[:-1]:
        if record.startswith(":"):
            continue
        fields = dict(line.split(": ", 1) for line in record.split("\n"))
        found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
    return found


async def settle(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not reached():  # noqa: ASYNC110 -- the client has no event for it
            await asyncio.sleep(0)


async def until(exchange: Exchange, count: int) -> list[Record]:
    """The records so far, at least `count` of them."""
    counted, ends = 0, 0

    def reached() -> bool:
        nonlocal counted, ends
        for body in exchange.bodies[counted:]:
            counted += 1
            ends += body.count(b"\n\n")
        return ends >= count

    await settle(reached)
    return records(exchange.body)


def removed(event_id: int) -> BlocksRemoved:
    return BlocksRemoved(event_id, (BlockIdentity(event_id),))


def run_app(scenario: Callable[[AsgiClient, EventStreams], Any], **settings: Any) -> Any:
    async def main() -> Any:
        app = create_app(ServeSettings(**{"speedup_ratio": 1000.0, **settings}))
        async with serving(app) as client:
            return await scenario(client, app.state.mocker.extras["event_streams"])

    return asyncio.run(main())


def test_kv_stream_shows_each_kind_of_event_with_its_fields() -> None:
    stored = BlocksStored(
        0,
        BlockIdentity(10),
        (StoredBlock(BlockIdentity(2**64 - 1), (1, 2)), StoredBlock(BlockIdentity(12))),
    )

    async def scenario(client: AsgiClient, streams: EventStreams) -> list[Record]:
        streams.on_kv_events(1, [stored, BlocksRemoved(1, (BlockIdentity(12),), StorageTier.HOST)])
        streams.on_kv_events(1, [BlocksCleared(2)])
        exchange = client.open("GET", "/admin/events/kv?token_ids=true")
        found = await until(exchange, 3)
        exchange.hang_up()
        await exchange.finished()
        return found

    found = run_app(scenario)
    assert [event for _, event, _ in found] == ["stored", "removed", "cleared"]
    assert found[0][2] == {
        "dp_rank": 1,
        "event_id": 0,
        "tier": "device",
        "parent": "000000000000000a",
        "blocks": [
            {"identity": "f" * 16, "token_hash": f"{token_hash((1, 2)):016x}", "token_ids": [1, 2]},
            {"identity": "000000000000000c", "token_hash": None, "token_ids": None},
        ],
    }
    assert found[1][2] == {
        "dp_rank": 1,
        "event_id": 1,
        "tier": "host",
        "identities": ["000000000000000c"],
    }
    assert found[2][2] == {"dp_rank": 1, "event_id": 2}
    ids = [event_id for event_id, _, _ in found]
    assert ids == list(range(ids[0], ids[0] + 3))


def test_lifecycle_stream_names_the_event_and_its_fields() -> None:
    async def scenario(client: AsgiClient, streams: EventStreams) -> list[Record]:
        streams.on_lifecycle(0, SourceHeld(HandoffId("h"), RequestId("r"), 1.5, 32))
        exchange = client.open("GET", "/admin/events/lifecycle")
        await until(exchange, 1)
        streams.on_lifecycle(0, DestinationReserved(HandoffId("h"), RequestId("d"), 16))
        found = await until(exchange, 2)
        exchange.hang_up()
        return found

    assert [record[1:] for record in run_app(scenario)] == [
        (
            "source_held",
            {
                "dp_rank": 0,
                "handoff_id": "h",
                "request_id": "r",
                "transfer_delay_ms": 1.5,
                "prompt_tokens": 32,
            },
        ),
        (
            "destination_reserved",
            {"dp_rank": 0, "handoff_id": "h", "request_id": "d", "transferable_prompt_tokens": 16},
        ),
    ]


def test_reader_that_reconnects_with_its_last_id_gets_only_what_came_since() -> None:
    async def scenario(client: AsgiClient, streams: EventStreams) -> None:
        streams.on_kv_events(0, [removed(number) for number in range(5)])
        first = client.open("GET", "/admin/events/kv")
        seen = await until(first, 5)
        first.hang_up()
        streams.on_kv_events(0, [removed(number) for number in range(5, 8)])
        for path, headers in [
            ("/admin/events/kv", {"Last-Event-ID": str(seen[3][0])}),
            (f"/admin/events/kv?last_event_id={seen[3][0]}", {}),
        ]:
            again = client.open("GET", path, headers=headers)
            found = await until(again, 4)
            again.hang_up()
            assert [(event, data["event_id"]) for _, event, data in found] == [
                ("removed", number) for number in range(4, 8)
            ]

    run_app(scenario)


def test_reader_from_now_gets_nothing_of_the_past() -> None:
    async def scenario(client: AsgiClient, streams: EventStreams) -> None:
        streams.on_kv_events(0, [removed(0)])
        exchange = client.open("GET", "/admin/events/kv?from=now")
        await settle(lambda: exchange.status is not None)
        streams.on_kv_events(0, [removed(1)])
        assert [data["event_id"] for _, _, data in await until(exchange, 1)] == [1]
        exchange.hang_up()

    run_app(scenario)


def test_bad_last_event_id_is_a_400_that_says_what_it_must_be() -> None:
    async def scenario(client: AsgiClient, streams: EventStreams) -> Exchange:
        return await client.get("/admin/events/fpm", {"Last-Event-ID": "soon"})

    exchange = run_app(scenario)
    assert exchange.status == 400
    assert "'soon'" in exchange.json()["error"]["message"]


def test_fifty_thousand_events_unheard_leave_a_bounded_ring_and_a_gap_for_the_late_reader() -> None:
    events = 50_000

    async def scenario(client: AsgiClient, streams: EventStreams) -> None:
        for number in range(events):
            streams.on_kv_events(0, [removed(number)])
            assert len(streams.kv) <= KV_EVENTS_KEPT
            assert streams.kv.weight <= KV_BLOCKS_KEPT
        exchange = client.open("GET", "/admin/events/kv")
        found = await until(exchange, len(streams.kv) + 1)
        exchange.hang_up()
        last_id, event, gap = found[0]
        assert (event, gap["missed"]) == ("gap", events - len(streams.kv))
        assert gap["last_id"] == last_id == found[1][0] - 1
        assert [data["event_id"] for _, _, data in found[1:]] == list(range(gap["missed"], events))

    run_app(scenario)


def test_slow_reader_stops_nobody_and_is_told_of_its_gap_when_it_reads_on() -> None:
    async def scenario(client: AsgiClient, streams: EventStreams) -> None:
        exchange = client.open("GET", "/admin/events/kv")
        streams.on_kv_events(0, [removed(0)])
        await until(exchange, 1)
        exchange.pause()
        for number in range(1, 2 * KV_EVENTS_KEPT):
            streams.on_kv_events(0, [removed(number)])
            if number % 1000 == 0:
                await asyncio.sleep(0)
        exchange.resume()
        last = b"id: %d\n" % streams.kv.last_id
        await settle(lambda: last in exchange.bodies[-1])
        exchange.hang_up()
        found = records(exchange.body)
        missed = sum(data["missed"] for _, event, data in found if event == "gap")
        shown = [data["event_id"] for _, event, data in found if event != "gap"]
        assert missed > 0
        assert len(shown) + missed == 2 * KV_EVENTS_KEPT
        assert shown == sorted(shown)

    run_app(scenario)


def test_nothing_is_encoded_until_somebody_reads() -> None:
    async def scenario() -> list[int]:
        encoded: list[int] = []

        def encode(item: int) -> tuple[str, dict[str, Any]]:
            encoded.append(item)
            return "number", {"value": item}

        ring: EventRing[int] = EventRing(10)
        for number in range(100):
            ring.push(number)
        assert encoded == []
        ring.close()
        async for _ in sse_records(ring, 0, encode):
            pass
        return encoded

    assert asyncio.run(scenario()) == list(range(90, 100))


def test_served_request_shows_its_stored_blocks_and_passes() -> None:
    async def scenario(client: AsgiClient, streams: EventStreams) -> None:
        body = {"model": "mocker", "prompt": list(range(40)), "max_tokens": 2, "ignore_eos": True}
        answer = await client.post("/v1/completions", body)
        assert answer.status == 200, answer.body
        kv = client.open("GET", "/admin/events/kv?token_ids=true")
        fpm = client.open("GET", "/admin/events/fpm")
        _, event, stored = (await until(kv, 1))[0]
        assert event == "stored"
        assert [block["token_ids"] for block in stored["blocks"]] == [
            list(range(16)),
            list(range(16, 32)),
        ]
        passes = await until(fpm, 2)
        assert [data["pass_index"] for _, _, data in passes] == [1, 2]
        assert passes[0][2]["scheduled_prefill"]["sum_tokens"] == 40
        metrics = (await client.get("/admin/metrics")).json()
        assert metrics["fpm"] == [passes[-1][2]]
        kv.hang_up()
        fpm.hang_up()

    run_app(scenario, block_size=16)


def test_metrics_have_no_fpm_of_a_rank_before_its_first_pass() -> None:
    async def scenario(client: AsgiClient, streams: EventStreams) -> Any:
        none = LengthStats()
        streams.on_fpm(1, ForwardPassMetrics(1, 7, 0.0, 5.0, none, none, none, none, 0))
        return (await client.get("/admin/metrics")).json()["fpm"]

    figures = run_app(scenario, data_parallel_size=2)
    assert figures[0] is None
    assert figures[1]["pass_index"] == 7


@pytest.mark.e2e
def test_open_stream_ends_cleanly_when_the_server_stops() -> None:
    with LiveServer(speedup_ratio=1000.0) as server:
        with httpx.stream("GET", f"{server.url}/admin/events/kv", timeout=20) as response:
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            streams = server.state.extras["event_streams"]
            server.call(lambda: streams.on_kv_events(0, [BlocksCleared(0)]))
            lines = response.iter_lines()
            assert next(lines).startswith("id: ")
            server.begin_stop()
            rest = list(lines)  # raises if the body were cut
        assert "event: cleared" in rest
