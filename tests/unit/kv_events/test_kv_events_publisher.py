from __future__ import annotations

import random
import socket
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
import zmq

from app.kv_events.config import KvEventsConfig
from app.kv_events.publisher import ZmqKvEventPublisher
from mocker_core.errors import ArgumentError
from mocker_core.events import BlocksCleared, BlocksRemoved, BlocksStored, KvEvent, StoredBlock
from mocker_core.request import BlockIdentity
from tests.factories import make_core, make_request
from tests.harness.live_server import LiveServer
from tests.unit.kv_events.vllm_subscriber import BlockStored, VllmSubscriber

BLOCK_SIZE = 4


def free_ports(count: int) -> int:
    """The first of `count` ports in a row that are free now."""
    while True:
        first = random.randint(20_000, 60_000)
        sockets = [socket.socket() for _ in range(count)]
        try:
            for offset, probe in enumerate(sockets):
                probe.bind(("0.0.0.0", first + offset))
        except OSError:
            continue
        finally:
            for probe in sockets:
                probe.close()
        return first


class Endpoints:
    """Ports for `dp_size` publishers and replay sockets."""

    def __init__(self, dp_size: int = 1) -> None:
        self.first = free_ports(2 * dp_size)
        self.dp_size = dp_size

    def config(self, **more: Any) -> dict[str, Any]:
        return {
            "enable_kv_cache_events": True,
            "endpoint": f"tcp://*:{self.first}",
            "replay_endpoint": f"tcp://*:{self.first + self.dp_size}",
            **more,
        }

    def subscriber(self, dp_rank: int = 0, topic: str = "") -> VllmSubscriber:
        first = self.first + dp_rank
        return VllmSubscriber(f"tcp://127.0.0.1:{first}", f"tcp://127.0.0.1:{first + self.dp_size}", topic)


@contextmanager
def publishing(endpoints: Endpoints, dp_size: int = 1, **more: Any) -> Iterator[ZmqKvEventPublisher]:
    config = KvEventsConfig.from_mapping(endpoints.config(**more))
    publisher = ZmqKvEventPublisher(config, dp_size, BLOCK_SIZE, now_s=lambda: 12.5)
    publisher.start()
    try:
        yield publisher
    finally:
        publisher.stop()


def removed(event_id: int) -> BlocksRemoved:
    return BlocksRemoved(event_id, (BlockIdentity(event_id),))


def stored(event_id: int) -> BlocksStored:
    return BlocksStored(event_id, None, (StoredBlock(BlockIdentity(event_id), (1, 2, 3, 4)),))


def hear(publisher: ZmqKvEventPublisher, subscriber: VllmSubscriber, dp_rank: int = 0) -> None:
    """Publish cleared events until the subscription is in force."""
    for event_id in range(1000):
        publisher.on_kv_events(dp_rank, [BlocksCleared(event_id)])
        if subscriber.sub.poll(10):
            subscriber.drain(100)
            return
    raise AssertionError("the subscriber hears nothing")


def ask(subscriber: VllmSubscriber, *frames: bytes) -> list[list[bytes]]:
    """Send a replay request and return the frames of each answer up to the end marker."""
    assert subscriber.replay is not None
    subscriber.replay.send_multipart([b"", *frames])
    answers = []
    while subscriber.replay.poll(5000):
        answers.append(subscriber.replay.recv_multipart()[1:])
        if answers[-1][0] == b"\xff" * 8:
            return answers
    raise AssertionError("the replay has no end")


def test_message_has_the_topic_the_number_and_the_batch() -> None:
    endpoints = Endpoints()
    with (
        publishing(endpoints, topic="kv@pod") as publisher,
        endpoints.subscriber(topic="kv@") as subscriber,
    ):
        hear(publisher, subscriber)
        before = subscriber.last_sequence
        publisher.on_kv_events(0, [stored(1), removed(1)])
        assert subscriber.receive() == before + 1
        assert subscriber.topics == {b"kv@pod"}
        batch = subscriber.batches[-1]
        assert (batch.ts, batch.data_parallel_rank) == (12.5, 0)
        assert [type(event).__name__ for event in batch.events] == ["BlockStored", "BlockRemoved"]
        assert subscriber.resident == {"GPU": set()}


def test_subscriber_of_another_topic_hears_nothing() -> None:
    endpoints = Endpoints()
    with (
        publishing(endpoints, topic="kv@pod") as publisher,
        endpoints.subscriber(topic="other") as other,
        endpoints.subscriber(topic="kv@pod") as subscriber,
    ):
        hear(publisher, subscriber)
        assert not other.sub.poll(50)


def test_each_rank_has_an_endpoint_and_numbers_of_its_own() -> None:
    endpoints = Endpoints(2)
    with (
        publishing(endpoints, 2) as publisher,
        endpoints.subscriber(0) as first,
        endpoints.subscriber(1) as second,
    ):
        hear(publisher, first, 0)
        hear(publisher, second, 1)
        publisher.on_kv_events(1, [stored(5)])
        second.receive()
        assert second.batches[-1].data_parallel_rank == 1
        assert second.resident == {"GPU": {5}}
        assert not first.sub.poll(50)


def test_replay_starts_at_the_number_asked_for_and_ends_with_the_marker() -> None:
    endpoints = Endpoints()
    with publishing(endpoints) as publisher, endpoints.subscriber() as subscriber:
        for event_id in range(200):
            publisher.on_kv_events(0, [stored(event_id)])
        hear(publisher, subscriber)
        already = publisher.counts(0).replayed
        answers = ask(subscriber, (50).to_bytes(8, "big"))
        numbers = [int.from_bytes(frames[0], "big") for frames in answers[:-1]]
        assert numbers[:150] == list(range(50, 200))
        assert numbers == list(range(50, 50 + len(numbers)))
        assert answers[-1] == [b"\xff" * 8, b""]
        assert publisher.counts(0).replayed - already == len(numbers)


def test_replay_of_what_is_gone_from_the_buffer_starts_with_the_oldest_kept() -> None:
    endpoints = Endpoints()
    with (
        publishing(endpoints, buffer_steps=10) as publisher,
        endpoints.subscriber() as subscriber,
    ):
        hear(publisher, subscriber)
        for event_id in range(100):
            publisher.on_kv_events(0, [stored(event_id)])
            subscriber.receive()
        answers = ask(subscriber, (0).to_bytes(8, "big"))
        assert len(answers) == 11
        assert int.from_bytes(answers[-2][0], "big") == subscriber.last_sequence


def test_replay_of_the_future_is_only_the_marker() -> None:
    endpoints = Endpoints()
    with publishing(endpoints) as publisher, endpoints.subscriber() as subscriber:
        hear(publisher, subscriber)
        assert ask(subscriber, (10**6).to_bytes(8, "big")) == [[b"\xff" * 8, b""]]


def test_malformed_replay_request_is_not_answered_and_harms_nobody() -> None:
    endpoints = Endpoints()
    with publishing(endpoints) as publisher, endpoints.subscriber() as subscriber:
        hear(publisher, subscriber)
        assert subscriber.replay is not None
        subscriber.replay.send_multipart([b"", b"short"])
        subscriber.replay.send_multipart([b"no delimiter", (0).to_bytes(8, "big")])
        subscriber.replay.send_multipart([b"", b"", b"", b""])
        assert len(ask(subscriber, (0).to_bytes(8, "big"))) >= 2


def test_client_that_reads_no_replay_loses_nothing_and_delays_nobody() -> None:
    endpoints = Endpoints()
    messages = 5000
    with (
        publishing(endpoints) as publisher,
        endpoints.subscriber() as slow,
        endpoints.subscriber() as quick,
    ):
        for event_id in range(messages):
            publisher.on_kv_events(0, [stored(event_id)])
        hear(publisher, quick)
        assert slow.replay is not None
        slow.replay.send_multipart([b"", (0).to_bytes(8, "big")])
        assert len(ask(quick, (0).to_bytes(8, "big"))) > messages
        before = quick.last_sequence
        publisher.on_kv_events(0, [stored(messages)])
        assert quick.receive() == before + 1
        answers: list[bytes] = []
        while not answers or answers[-1] != b"\xff" * 8:
            assert slow.replay.poll(5000)
            answers.append(slow.replay.recv_multipart()[1])
        numbers = [int.from_bytes(number, "big") for number in answers[:-1]]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > messages


def test_queue_without_room_drops_counts_and_leaves_a_hole_in_the_numbers() -> None:
    endpoints = Endpoints()
    config = KvEventsConfig.from_mapping(endpoints.config(max_queue_size=2))
    publisher = ZmqKvEventPublisher(config, 1, BLOCK_SIZE)
    # Not started: the first messages of an engine that is quicker than the thread.
    publisher.on_kv_events(0, [removed(0)])
    publisher.on_kv_events(0, [removed(1)])
    assert publisher.counts(0).dropped == 2
    publisher.start()
    try:
        with endpoints.subscriber() as subscriber:
            hear(publisher, subscriber)
            assert subscriber.gaps[0][0] == 0
            published = publisher.counts(0).published
            assert subscriber.last_sequence == published + 2 - 1 + publisher.counts(0).dropped - 2
    finally:
        publisher.stop()


def test_fifty_thousand_events_with_nobody_listening_keep_memory_flat() -> None:
    endpoints = Endpoints()
    with publishing(endpoints, buffer_steps=500, max_queue_size=1000) as publisher:

        def produce(messages: int) -> None:
            for event_id in range(messages):
                publisher.on_kv_events(0, [stored(event_id) for _ in range(10)])

        produce(2000)
        tracemalloc.start()
        try:
            produce(1000)
            before, _ = tracemalloc.get_traced_memory()
            produce(5000)
            after, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert after - before < 3_000_000
        assert peak < 10_000_000


def test_port_that_is_taken_is_refused_with_its_endpoint() -> None:
    endpoints = Endpoints()
    with publishing(endpoints):
        second = ZmqKvEventPublisher(KvEventsConfig.from_mapping(endpoints.config()), 1, BLOCK_SIZE)
        with pytest.raises(ArgumentError, match=f"{endpoints.first}"):
            second.start()
        second.stop()


def test_endpoint_without_wildcard_is_connected_to() -> None:
    port = free_ports(1)
    context = zmq.Context()
    try:
        collector = context.socket(zmq.SUB)
        collector.setsockopt_string(zmq.SUBSCRIBE, "")
        collector.bind(f"tcp://127.0.0.1:{port}")
        config = KvEventsConfig(enable_kv_cache_events=True, endpoint=f"tcp://127.0.0.1:{port}")
        publisher = ZmqKvEventPublisher(config, 1, BLOCK_SIZE)
        publisher.start()
        try:
            for event_id in range(1000):
                publisher.on_kv_events(0, [removed(event_id)])
                if collector.poll(10):
                    break
            else:
                raise AssertionError("the collector hears nothing")
        finally:
            publisher.stop()
    finally:
        context.destroy(linger=0)


def test_late_subscriber_asks_for_the_replay_and_ends_with_the_resident_blocks_of_the_core() -> None:
    endpoints = Endpoints()
    core = make_core(num_gpu_blocks=24, block_size=BLOCK_SIZE)
    rng = random.Random(5)

    def work(publisher: ZmqKvEventPublisher, name: str, requests: int) -> None:
        for number in range(requests):
            start = rng.choice([0, 100, 200, 300, 400])
            prompt = rng.randint(1, 30)
            core.receive(
                make_request(f"{name}{number}", start=start, prompt=prompt, output=rng.randint(1, 9))
            )
            now_ms = 0.0
            while not core.is_empty():
                result = core.execute_pass(now_ms)
                now_ms = result.end_ms
                events: tuple[KvEvent, ...] = tuple(result.kv_events) + core.take_kv_events()
                if events:
                    publisher.on_kv_events(0, events)

    with publishing(endpoints) as publisher:
        work(publisher, "early", 60)
        with endpoints.subscriber() as subscriber:
            # Only what is published once the subscription is in force comes by itself.
            while not subscriber.sub.poll(10):
                work(publisher, "join", 1)
            subscriber.drain()
            assert subscriber.gaps[0][0] == 0
            assert subscriber.resident["GPU"] == set(core.pool.identities())
            # A gap in the middle: what comes now is lost on the way.
            work(publisher, "away", 20)
            while subscriber.sub.poll(200):
                subscriber.sub.recv_multipart()
            work(publisher, "back", 10)
            subscriber.drain()
            assert len(subscriber.gaps) == 2
            assert subscriber.resident["GPU"] == set(core.pool.identities())
            assert publisher.counts(0).dropped == 0
            for batch in subscriber.batches:
                for event in batch.events:
                    if isinstance(event, BlockStored):
                        assert len(event.token_ids) == BLOCK_SIZE * len(event.block_hashes)


@pytest.mark.e2e
def test_server_publishes_the_blocks_of_a_request_and_their_tokens() -> None:
    endpoints = Endpoints()
    with (
        LiveServer(
            speedup_ratio=1000.0, block_size=16, kv_events_config=endpoints.config(topic="kv-events")
        ) as server,
        endpoints.subscriber(topic="kv-events") as subscriber,
    ):
        for number in range(100):
            tokens = [1000 * number + place for place in range(40)]
            body = {"model": "mocker", "prompt": tokens, "max_tokens": 1, "ignore_eos": True}
            httpx.post(f"{server.url}/v1/completions", json=body, timeout=20).raise_for_status()
            if subscriber.sub.poll(20):
                break
        subscriber.drain()
        metrics = httpx.get(f"{server.url}/admin/metrics", timeout=20).json()
        counts = metrics["kv_events_publisher"][0]
        assert (counts["published"], counts["dropped"]) == (number + 1, 0)
    assert len(subscriber.resident["GPU"]) == 2 * (number + 1)
    assert list(subscriber.tokens.values())[-2:] == [tokens[:16], tokens[16:32]]
