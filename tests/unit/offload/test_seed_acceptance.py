"""The reference's own acceptance case of the host tier, step by step on the core."""

from __future__ import annotations

import pytest

from mocker_core.commands import (
    Applied,
    CancelDestination,
    CancelSource,
    DestinationAccepted,
    Noop,
    ReserveDestination,
    SubmitHandoffPrefill,
    Submitted,
)
from mocker_core.events import DestinationReserved, SourceHeld, StorageTier
from mocker_core.request import DirectRequest, HandoffId, RequestId
from tests.factories import make_request
from tests.unit.offload.tier_driver import Driver

SOURCE, DESTINATION = HandoffId("source"), HandoffId("destination")


def seed_driver() -> Driver:
    return Driver(
        num_gpu_blocks=2,
        block_size=4,
        worker_type="decode",
        kv_bytes_per_token=250_000,
        num_g2_blocks=4,
        max_num_seqs=1,
        speedup_ratio=1000.0,
    )


def prompt(request_id: str, token: int, length: int) -> DirectRequest:
    return make_request(request_id, tokens=(token,) * length, output=1)


def test_idle_destination_reservation_wakes_at_offload_deadline() -> None:
    driver = seed_driver()
    # A finished request leaves one full block behind, a handoff prefill of 3 tokens holds the other.
    driver.serve(prompt("seed", 1, 4))
    assert list(driver.finished) == ["seed"]
    assert driver.mirror.stored(StorageTier.HOST) == []
    assert driver.apply(SubmitHandoffPrefill(SOURCE, prompt("held", 3, 3))) == Submitted(RequestId("held"))
    driver.execute_pass()
    held = driver.lifecycle.pop()
    assert isinstance(held, SourceHeld)
    assert (held.handoff_id, held.request_id) == (SOURCE, "held")
    start_ms = driver.now_ms

    command = ReserveDestination(DESTINATION, prompt("reserved", 2, 4))
    assert driver.apply(command) == DestinationAccepted(RequestId("reserved"))
    assert driver.lifecycle == []
    assert driver.core.is_empty()
    assert driver.core.pool.in_copy_blocks == 1

    # Nothing but time wakes it: the copy of 1e6 bytes over 1 GB/s takes 1 ms.
    deadline_ms = driver.core.next_deadline_ms()
    assert deadline_ms == pytest.approx(start_ms + 1.0)
    driver.advance_to(start_ms + 0.5)
    assert driver.lifecycle == []
    assert deadline_ms is not None
    driver.advance_to(deadline_ms)
    assert driver.lifecycle == [DestinationReserved(DESTINATION, RequestId("reserved"), 4)]
    assert len(driver.mirror.stored(StorageTier.HOST)) == 1
    driver.lifecycle.clear()

    assert driver.apply(CancelDestination(HandoffId("unknown"))) == Noop()
    assert driver.lifecycle == []
    assert len(driver.mirror.stored(StorageTier.HOST)) == 1

    assert driver.apply(CancelDestination(DESTINATION)) == Applied()
    assert driver.apply(CancelSource(SOURCE)) == Applied()
    assert driver.core.pool.used_blocks == 0
    assert not driver.core.requests


def test_deadline_in_mid_pass_moves_the_transfer_but_grants_nothing() -> None:
    driver = seed_driver()
    driver.serve(prompt("seed", 1, 4))
    driver.apply(SubmitHandoffPrefill(SOURCE, prompt("held", 3, 3)))
    driver.execute_pass()
    driver.lifecycle.clear()
    driver.apply(ReserveDestination(DESTINATION, prompt("reserved", 2, 4)))
    deadline_ms = driver.core.next_deadline_ms()
    assert deadline_ms is not None
    driver.advance_to(deadline_ms, grant=False)
    assert driver.lifecycle == []
    assert len(driver.mirror.stored(StorageTier.HOST)) == 1
    assert driver.core.pool.in_copy_blocks == 0
    effects = driver.core.retry_destinations(driver.now_ms)
    assert [type(event) for event in effects.lifecycle] == [DestinationReserved]


def test_reservation_tries_again_only_once_the_copy_has_ended() -> None:
    driver = seed_driver()
    driver.serve(prompt("seed", 1, 4))
    driver.apply(SubmitHandoffPrefill(SOURCE, prompt("held", 3, 3)))
    driver.execute_pass()
    driver.lifecycle.clear()
    driver.apply(ReserveDestination(DESTINATION, prompt("reserved", 2, 4)))
    for _ in range(5):
        driver.core.retry_destinations(driver.now_ms)
    assert driver.core.offload_stats().transfers_active == 1  # type: ignore[union-attr]
    assert driver.apply(CancelDestination(DESTINATION)) == Applied()
    assert driver.apply(CancelSource(SOURCE)) == Applied()
    driver.run()
    # The copy was under way and ends; nobody waits for it any more.
    assert len(driver.mirror.stored(StorageTier.HOST)) == 1
    assert driver.lifecycle == []
