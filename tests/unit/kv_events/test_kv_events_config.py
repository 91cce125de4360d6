from __future__ import annotations

from typing import Any

import pytest

from app.factory import create_app
from app.kv_events.config import KvEventsConfig, binds, rank_endpoint
from app.settings import ServeSettings
from mocker_core.errors import ArgumentError


def test_no_configuration_has_vllms_defaults_and_publishes_nothing() -> None:
    config = KvEventsConfig.from_mapping(None)
    assert config.endpoint == "tcp://*:5557"
    assert config.replay_endpoint is None
    assert (config.buffer_steps, config.hwm, config.max_queue_size) == (10_000, 100_000, 100_000)
    assert config.topic == ""
    assert not config.publishes


@pytest.mark.parametrize(
    ("values", "publishes"),
    [
        ({"enable_kv_cache_events": True}, True),
        ({"enable_kv_cache_events": True, "publisher": "zmq"}, True),
        ({"enable_kv_cache_events": True, "publisher": "null"}, False),
        ({"publisher": "zmq"}, False),
    ],
)
def test_events_are_published_only_if_enabled_and_not_null(values: dict[str, Any], publishes: bool) -> None:
    assert KvEventsConfig.from_mapping(values).publishes is publishes


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"enable_kv_cache_event": True}, "enable_kv_cache_event'"),
        ({"enable_kv_cache_events": "yes"}, "'yes'"),
        ({"publisher": "kafka"}, "'kafka'"),
        ({"endpoint": "*:5557"}, "'*:5557'"),
        ({"endpoint": "tcp://*"}, "'tcp://*'"),
        ({"endpoint": "tcp://*:0"}, "'tcp://*:0'"),
        ({"endpoint": 5557}, "5557"),
        ({"replay_endpoint": "tcp://*:70000"}, "'tcp://*:70000'"),
        ({"buffer_steps": -1}, "-1"),
        ({"hwm": 1.5}, "1.5"),
        ({"max_queue_size": 0}, "0"),
        ({"topic": None}, "None"),
        ({"event_encoding": "json"}, "'json'"),
    ],
)
def test_wrong_value_is_refused_by_name_and_value(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError) as refusal:
        KvEventsConfig.from_mapping(values)
    assert "--kv-events-config" in str(refusal.value)
    assert said in str(refusal.value)
    assert next(iter(values)) in str(refusal.value)


def test_ranks_have_ports_of_their_own() -> None:
    config = KvEventsConfig(endpoint="tcp://*:5557", replay_endpoint="tcp://127.0.0.1:6000")
    assert config.endpoints(0) == ("tcp://*:5557", "tcp://127.0.0.1:6000")
    assert config.endpoints(3) == ("tcp://*:5560", "tcp://127.0.0.1:6003")


def test_inproc_ranks_have_names_of_their_own() -> None:
    assert rank_endpoint("inproc://kv", 2) == "inproc://kv_dp2"


@pytest.mark.parametrize(("endpoint", "said"), [("ipc:///tmp/kv", "tcp://"), ("tcp://*:65535", "65536")])
def test_endpoint_that_cannot_serve_a_further_rank_is_refused(endpoint: str, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        rank_endpoint(endpoint, 1)


def test_replay_port_that_another_rank_publishes_on_is_refused() -> None:
    config = KvEventsConfig(endpoint="tcp://*:5557", replay_endpoint="tcp://*:5558")
    config.check_ranks(1)
    with pytest.raises(ArgumentError, match="replay_endpoint of rank 0"):
        config.check_ranks(2)


def test_endpoint_that_is_connected_to_may_share_a_port_with_one_that_is_bound() -> None:
    KvEventsConfig(endpoint="tcp://router:5557", replay_endpoint="tcp://*:5557").check_ranks(2)


@pytest.mark.parametrize(
    ("endpoint", "bound"),
    [
        ("tcp://*:5557", True),
        ("tcp://[::]:5557", True),
        ("ipc:///tmp/kv", True),
        ("inproc://kv", True),
        ("tcp://router:5557", False),
        ("tcp://127.0.0.1:5557", False),
    ],
)
def test_wildcards_are_bound_and_addresses_connected_to(endpoint: str, bound: bool) -> None:
    assert binds(endpoint) is bound


def test_server_with_a_wrong_configuration_does_not_start() -> None:
    with pytest.raises(ArgumentError, match="replay"):
        create_app(ServeSettings(kv_events_config={"enable_kv_cache_events": True, "replay": 1}))
