from __future__ import annotations

from typing import Any

import pytest

from app.errors import ApiError
from app.pd.params import (
    Address,
    KvLoadError,
    KvLoadFault,
    TransferRole,
    given_handoff_id,
    remote_source,
    source_params,
    transfer_role,
)

GIVEN = source_params("engine", "handoff", Address("10.0.0.1", 8100), 3)


def test_what_a_prefill_answers_is_what_a_decode_reads() -> None:
    source = remote_source(GIVEN)
    assert (source.engine_id, source.handoff_id, source.base_url) == (
        "engine",
        "handoff",
        "http://10.0.0.1:8100",
    )
    assert GIVEN["remote_block_ids"] == [0, 1, 2]
    assert transfer_role(GIVEN) is TransferRole.DESTINATION


def test_keys_of_our_own_do_not_show_where_they_say_nothing() -> None:
    assert "remote_scheme" not in GIVEN
    assert source_params("e", "h", Address("x", 1, "https"), 1)["remote_scheme"] == "https"


def test_ipv6_host_is_bracketed_in_the_address() -> None:
    assert remote_source(GIVEN | {"remote_host": "::1"}).base_url == "http://[::1]:8100"


def test_port_may_come_as_text() -> None:
    assert remote_source(GIVEN | {"remote_port": "8100"}).address.port == 8100


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("remote_engine_id", None),
        ("remote_engine_id", 7),
        ("remote_engine_id", ""),
        ("remote_request_id", "x" * 1000),
        ("remote_request_id", "a/../b"),
        ("remote_request_id", "a\nb"),
        ("remote_host", "evil/path"),
        ("remote_host", "user@host"),
        ("remote_host", "a b"),
        ("remote_port", True),
        ("remote_port", 0),
        ("remote_port", "80a"),
        ("remote_port", 1.5),
        ("remote_block_ids", "all"),
        ("remote_block_ids", []),
        ("remote_scheme", "ftp"),
    ],
)
def test_wrong_value_is_named(key: str, value: Any) -> None:
    with pytest.raises(KvLoadError, match=f"kv_transfer_params.{key} is") as caught:
        remote_source(GIVEN | {key: value})
    assert caught.value.fault is KvLoadFault.MALFORMED
    assert caught.value.as_api_error().status == 400
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize("params", [None, {}, {"do_remote_decode": False}, {"other": 1}])
def test_parameters_that_ask_for_nothing_have_no_role(params: dict[str, Any] | None) -> None:
    assert transfer_role(params) is TransferRole.NONE


def test_prefill_parameters_have_the_role_of_a_source() -> None:
    assert transfer_role({"do_remote_decode": True, "do_remote_prefill": None}) is TransferRole.SOURCE


@pytest.mark.parametrize(
    "params", [{"do_remote_decode": True, "do_remote_prefill": True}, {"do_remote_prefill": 1}]
)
def test_contradictory_role_is_a_400(params: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        transfer_role(params)
    assert caught.value.status == 400


@pytest.mark.parametrize("value", [7, "", "a/b", "é", "x" * 200])
def test_unusable_handoff_id_is_a_400(value: Any) -> None:
    with pytest.raises(ApiError, match="handoff_id"):
        given_handoff_id({"handoff_id": value})


@pytest.mark.parametrize("fault", [KvLoadFault.UNREACHABLE, KvLoadFault.BROKEN])
def test_source_that_is_gone_is_a_502(fault: KvLoadFault) -> None:
    assert KvLoadError(fault, "Gone.").as_api_error().status == 502
