"""`reset_prefix_cache`: all or nothing, every tier, one Cleared event."""

from __future__ import annotations

import pytest

from mocker_core.commands import CancelSource, ReserveDestination, SubmitHandoffPrefill
from mocker_core.events import BlocksCleared, StorageTier
from mocker_core.request import HandoffId, RequestId
from tests.factories import make_core, make_request, run_passes
from tests.harness.invariants import assert_drained, assert_invariants
from tests.unit.offload.tier_driver import Driver


def reset(driver: Driver) -> bool:
    done = driver.core.reset_prefix_cache(driver.now_ms)
    driver.check()
    return done


def test_reset_of_an_idle_engine_forgets_the_cache() -> None:
    core = make_core(num_gpu_blocks=6)
    core.receive(make_request("a", prompt=9, start=1))
    run_passes(core)
    core.take_kv_events()
    assert core.reset_prefix_cache(100.0)
    assert [type(event) for event in core.take_kv_events()] == [BlocksCleared]
    assert (core.pool.free_blocks, core.pool.inactive_blocks) == (6, 0)
    core.receive(make_request("b", prompt=9, start=1))
    results = run_passes(core)
    assert results[0].admissions[0].reused_input_tokens == 0
    assert_invariants(core)


def test_reset_while_a_request_runs_changes_nothing() -> None:
    core = make_core(num_gpu_blocks=6)
    core.receive(make_request("a", prompt=9, output=5, start=1))
    core.execute_pass(0.0)
    core.take_kv_events()
    before = (core.pool.free_blocks, set(core.pool.identities()), core.scheduler.capacity_generation)
    assert not core.reset_prefix_cache(1.0)
    assert core.take_kv_events() == ()
    assert (core.pool.free_blocks, set(core.pool.identities()), core.scheduler.capacity_generation) == before


def test_reset_while_requests_only_wait_goes_through() -> None:
    core = make_core(num_gpu_blocks=6)
    core.receive(make_request("a", prompt=9, start=1))
    assert core.reset_prefix_cache(0.0)
    run_passes(core)
    assert_drained(core)


@pytest.mark.parametrize("holder", ["source", "destination"])
def test_reset_while_a_handoff_holds_blocks_changes_nothing(holder: str) -> None:
    driver = Driver(worker_type="decode")
    if holder == "source":
        driver.apply(SubmitHandoffPrefill(HandoffId("h"), make_request("r", prompt=5)))
        driver.execute_pass()
    else:
        driver.apply(ReserveDestination(HandoffId("h"), make_request("r", prompt=5)))
    assert not reset(driver)
    driver.cancel("r")
    assert reset(driver)


def test_reset_without_prefix_caching_succeeds_and_says_nothing() -> None:
    core = make_core(enable_prefix_caching=False)
    assert core.reset_prefix_cache(0.0)
    assert core.take_kv_events() == ()


def test_reset_lets_a_pending_destination_have_the_slots() -> None:
    driver = Driver(num_gpu_blocks=4, worker_type="decode", bandwidth_g1_to_g2_gbps=0.001)
    driver.serve(make_request("old", prompt=13))
    driver.apply(ReserveDestination(HandoffId("h"), make_request("d", prompt=12)))
    assert driver.lifecycle == []
    assert driver.core.pool.in_copy_blocks > 0
    assert reset(driver), "copies under way are no one's blocks"
    assert driver.core.pool.in_copy_blocks == 0
    assert len(driver.core.retry_destinations(driver.now_ms).lifecycle) == 1


def test_reset_clears_every_tier_and_the_links() -> None:
    driver = Driver(num_gpu_blocks=5, num_g2_blocks=2, num_g3_blocks=10)
    for number in range(5):
        driver.serve(make_request(f"r{number}", prompt=17, start=100 * (number + 1), output=1))
    assert all(driver.mirror.resident.values())
    driver.receive(make_request("last", prompt=17, output=1))
    driver.execute_pass()
    assert driver.core.next_deadline_ms() is not None
    assert reset(driver)
    assert driver.core.next_deadline_ms() is None
    assert driver.mirror.resident == {tier: set() for tier in StorageTier}
    driver.serve(make_request("again", prompt=17, start=100, output=1))
    assert driver.finished[RequestId("again")].reused_input_tokens == 0
    assert RequestId("last") in driver.finished


def test_reset_while_a_request_is_parked_changes_nothing() -> None:
    driver = Driver(num_gpu_blocks=5, bandwidth_g2_to_g1_gbps=0.01)
    for number in range(2):
        driver.serve(make_request(f"r{number}", prompt=17, start=100 * (number + 1), output=1))
    driver.receive(make_request("again", prompt=17, start=100, output=1))
    while not driver.ops.num_parked:
        assert driver.step()
    assert not reset(driver)
    driver.run()
    assert driver.finished[RequestId("again")].reused_input_tokens == 16


def test_reset_refused_for_a_held_source_works_after_its_cancel() -> None:
    driver = Driver(worker_type="prefill")
    driver.apply(SubmitHandoffPrefill(HandoffId("h"), make_request("r", prompt=5)))
    driver.execute_pass()
    assert not reset(driver)
    driver.apply(CancelSource(HandoffId("h")))
    assert reset(driver)
