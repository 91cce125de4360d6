"""`--kv-events-config`: vLLM's JSON, its defaults and its rule for one port per rank.

Owns the checks, so that a wrong value stops the start with a sentence. Must not know sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from mocker_core.errors import ArgumentError

_FLAG = "--kv-events-config"
_PUBLISHERS = ("zmq", "null")
_ENCODINGS = ("array", "map")
_TRANSPORTS = ("tcp", "ipc", "inproc")


@dataclass(frozen=True, slots=True, kw_only=True)
class KvEventsConfig:
    """vLLM's fields by their names. `publisher` None: zmq where events are enabled, else null.

    `event_encoding` is ours: `array` as vLLM before 0.24 writes an event, `map` as later ones do.
    """

    enable_kv_cache_events: bool = False
    publisher: str | None = None
    endpoint: str = "tcp://*:5557"
    replay_endpoint: str | None = None
    buffer_steps: int = 10_000
    hwm: int = 100_000
    max_queue_size: int = 100_000
    topic: str = ""
    event_encoding: str = "array"

    def __post_init__(self) -> None:
        _check_bool("enable_kv_cache_events", self.enable_kv_cache_events)
        if self.publisher is not None:
            _check_choice("publisher", self.publisher, _PUBLISHERS)
        _check_choice("event_encoding", self.event_encoding, _ENCODINGS)
        _check_text("topic", self.topic)
        _check_endpoint("endpoint", self.endpoint)
        if self.replay_endpoint is not None:
            _check_endpoint("replay_endpoint", self.replay_endpoint)
        _check_count("buffer_steps", self.buffer_steps, 0)
        _check_count("hwm", self.hwm, 0)
        _check_count("max_queue_size", self.max_queue_size, 1)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any] | None) -> KvEventsConfig:
        """The configuration as given in JSON; None is all defaults. Raises ArgumentError."""
        given = dict(values or {})
        known = [item.name for item in fields(cls)]
        unknown = [key for key in given if key not in known]
        if unknown:
            raise ArgumentError(
                f"{_FLAG} has the unknown key {unknown[0]!r}; its keys are {', '.join(known)}."
            )
        return cls(**given)

    @property
    def publishes(self) -> bool:
        """Whether anything is sent at all."""
        return self.enable_kv_cache_events and self.publisher != "null"

    def endpoints(self, dp_rank: int) -> tuple[str, str | None]:
        """Where this rank publishes and where it answers replays: TCP ports go up by one per rank.

        Raises ArgumentError where the rank cannot have an endpoint of its own.
        """
        replay = None if self.replay_endpoint is None else rank_endpoint(self.replay_endpoint, dp_rank)
        return rank_endpoint(self.endpoint, dp_rank), replay

    def check_ranks(self, dp_size: int) -> None:
        """Raises ArgumentError if two sockets of this server would need the same address."""
        taken: dict[str, str] = {}
        for rank in range(dp_size):
            for name, endpoint in zip(("endpoint", "replay_endpoint"), self.endpoints(rank), strict=True):
                if endpoint is None or (name == "endpoint" and not binds(endpoint)):
                    continue
                owner = f"{name} of rank {rank}"
                address = endpoint.rpartition(":")[2] if endpoint.startswith("tcp://") else endpoint
                if address in taken:
                    raise ArgumentError(
                        f"{_FLAG} gives {owner} the same address as {taken[address]}, {endpoint}; "
                        f"keep endpoint and replay_endpoint at least {dp_size} ports apart."
                    )
                taken[address] = owner


def rank_endpoint(endpoint: str, dp_rank: int) -> str:
    """vLLM's rule: rank 0 has the endpoint itself, rank r its TCP port + r or its inproc name + _dp<r>."""
    if dp_rank == 0:
        return endpoint
    if endpoint.startswith("inproc://"):
        return f"{endpoint}_dp{dp_rank}"
    if endpoint.startswith("tcp://"):
        base, _, port = endpoint.rpartition(":")
        if int(port) + dp_rank > 65535:
            raise ArgumentError(
                f"{_FLAG} has the endpoint {endpoint!r}, so rank {dp_rank} would need port "
                f"{int(port) + dp_rank}; take a lower port, the highest is 65535."
            )
        return f"{base}:{int(port) + dp_rank}"
    raise ArgumentError(
        f"{_FLAG} has the endpoint {endpoint!r}, which cannot serve rank {dp_rank}; "
        "with --data-parallel-size over 1 it must be a tcp:// or inproc:// endpoint."
    )


def binds(endpoint: str) -> bool:
    """vLLM's rule: a wildcard address, ipc or inproc is bound; anything else is connected to."""
    return "*" in endpoint or "::" in endpoint or endpoint.startswith(("ipc://", "inproc://"))


def _check_endpoint(name: str, value: object) -> None:
    _check_text(name, value)
    text = str(value)
    transport, separator, address = text.partition("://")
    if not separator or transport not in _TRANSPORTS or not address:
        raise ArgumentError(
            f"{_FLAG}: {name} is {text!r}; it must be a ZMQ endpoint such as tcp://*:5557 or ipc:///tmp/kv."
        )
    if transport == "tcp":
        host, _, port = address.rpartition(":")
        if not host or not (port.isascii() and port.isdigit()) or not 1 <= int(port) <= 65535:
            raise ArgumentError(
                f"{_FLAG}: {name} is {text!r}; a tcp:// endpoint needs a host and a port of 1 to 65535."
            )


def _check_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ArgumentError(f"{_FLAG}: {name} is {value!r}; it must be true or false.")


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise ArgumentError(f"{_FLAG}: {name} is {value!r}; it must be a text.")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ArgumentError(f"{_FLAG}: {name} is {value!r}; it must be one of {', '.join(choices)}.")


def _check_count(name: str, value: object, lowest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise ArgumentError(f"{_FLAG}: {name} is {value!r}; it must be a whole number of {lowest} or more.")
