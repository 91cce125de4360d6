"""A subscriber as one writes it for vLLM, from the public description of its KV events; nothing of ours."""

from __future__ import annotations

from typing import Any

import msgspec
import zmq


class BlockStored(msgspec.Struct, array_like=True, tag=True):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None = None


class BlockRemoved(msgspec.Struct, array_like=True, tag=True):
    block_hashes: list[int]
    medium: str | None


class AllBlocksCleared(msgspec.Struct, array_like=True, tag=True):
    pass


class KVEventBatch(msgspec.Struct, array_like=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


END_SEQUENCE = -1


class VllmSubscriber:
    """Keeps the resident blocks of one rank, per medium. Sequence numbers must go up by one; if they
    don't, it asks the replay socket.
    """

    def __init__(self, endpoint: str, replay_endpoint: str | None = None, topic: str = "") -> None:
        self.context = zmq.Context()
        self.sub = self.context.socket(zmq.SUB)
        self.sub.setsockopt_string(zmq.SUBSCRIBE, topic)
        self.sub.connect(endpoint)
        self.replay = None
        if replay_endpoint is not None:
            # A REQ socket would hand out only the first answer of each request.
            self.replay = self.context.socket(zmq.DEALER)
            self.replay.connect(replay_endpoint)
        self.last_sequence = -1
        self.gaps: list[tuple[int, int]] = []
        self.resident: dict[str | None, set[int]] = {}
        self.tokens: dict[int, list[int]] = {}
        self.batches: list[KVEventBatch] = []
        self.topics: set[bytes] = set()

    def __enter__(self) -> VllmSubscriber:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.destroy(linger=0)

    def receive(self, timeout_ms: int = 10_000) -> int:
        """Take one message, after a replay if some are missing; its sequence number."""
        assert self.sub.poll(timeout_ms), "no message came"
        topic, sequence_frame, payload = self.sub.recv_multipart()
        self.topics.add(topic)
        assert len(sequence_frame) == 8
        sequence = int.from_bytes(sequence_frame, "big")
        if sequence > self.last_sequence + 1:
            self.gaps.append((self.last_sequence + 1, sequence - 1))
            if self.replay is not None:
                self.catch_up()
        if sequence > self.last_sequence:
            self.apply(sequence, payload)
        return sequence

    def drain(self, quiet_ms: int = 200) -> None:
        while self.sub.poll(quiet_ms):
            self.receive()

    def catch_up(self) -> None:
        """Ask for everything after the last sequence number."""
        assert self.replay is not None
        self.replay.send_multipart([b"", (self.last_sequence + 1).to_bytes(8, "big")])
        while True:
            assert self.replay.poll(10_000), "the replay stopped"
            _, sequence_frame, payload = self.replay.recv_multipart()
            sequence = int.from_bytes(sequence_frame, "big", signed=True)
            if sequence == END_SEQUENCE:
                assert payload == b""
                return
            if sequence > self.last_sequence:
                self.apply(sequence, payload)

    def apply(self, sequence: int, payload: bytes) -> None:
        batch = msgspec.msgpack.decode(payload, type=KVEventBatch)
        self.last_sequence = sequence
        self.batches.append(batch)
        for event in batch.events:
            self.apply_event(event)

    def apply_event(self, event: Any) -> None:
        match event:
            case BlockStored():
                blocks = self.resident.setdefault(event.medium, set())
                for place, block in enumerate(event.block_hashes):
                    assert block not in blocks, "a block that is findable is not stored again"
                    blocks.add(block)
                    size = event.block_size
                    self.tokens[block] = event.token_ids[place * size : (place + 1) * size]
            case BlockRemoved():
                for block in event.block_hashes:
                    self.resident[event.medium].remove(block)
            case AllBlocksCleared():
                self.resident.clear()
