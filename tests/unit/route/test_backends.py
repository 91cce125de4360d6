from __future__ import annotations

import pytest

from app.route.backends import BackendPool, RoutePolicy
from mocker_core.errors import ArgumentError


def firsts(pool: BackendPool, turns: int) -> list[str]:
    return [pool.candidates()[0].url for _ in range(turns)]


def test_round_robin_takes_each_server_in_turn() -> None:
    pool = BackendPool("decode", ["http://a", "http://b", "http://c"], RoutePolicy.ROUND_ROBIN)
    assert firsts(pool, 4) == ["http://a", "http://b", "http://c", "http://a"]


def test_candidates_name_every_server_once() -> None:
    pool = BackendPool("decode", ["http://a", "http://b", "http://c"], RoutePolicy.LEAST_LOADED)
    assert {backend.url for backend in pool.candidates()} == {"http://a", "http://b", "http://c"}


def test_least_loaded_passes_by_a_busy_server() -> None:
    pool = BackendPool("decode", ["http://a", "http://b"], RoutePolicy.LEAST_LOADED)
    with pool.backends[0].busy():
        assert firsts(pool, 2) == ["http://b", "http://b"]
    assert pool.backends[0].in_flight == 0


def test_equally_loaded_servers_take_turns() -> None:
    pool = BackendPool("decode", ["http://a", "http://b"], RoutePolicy.LEAST_LOADED)
    assert firsts(pool, 3) == ["http://a", "http://b", "http://a"]


def test_busy_ends_with_an_error_too() -> None:
    pool = BackendPool("decode", ["http://a"], RoutePolicy.ROUND_ROBIN)
    with pytest.raises(RuntimeError), pool.backends[0].busy():
        raise RuntimeError
    assert pool.backends[0].in_flight == 0


@pytest.mark.parametrize(
    ("given", "kept"),
    [("http://a:1/", "http://a:1"), ("a:1", "http://a:1"), ("https://a/x/", "https://a/x")],
)
def test_address_is_brought_into_one_form(given: str, kept: str) -> None:
    assert BackendPool("prefill", [given], RoutePolicy.ROUND_ROBIN).backends[0].url == kept


@pytest.mark.parametrize(
    "url", ["ftp://a", "http://", "http://a?x=1", "", "http://[::1", "http://a:port", "http://a\x01b"]
)
def test_wrong_address_is_refused_by_name(url: str) -> None:
    with pytest.raises(ArgumentError, match="--prefill is"):
        BackendPool("prefill", [url], RoutePolicy.ROUND_ROBIN)


def test_empty_list_is_refused() -> None:
    with pytest.raises(ArgumentError, match="names no server"):
        BackendPool("decode", [], RoutePolicy.ROUND_ROBIN)
