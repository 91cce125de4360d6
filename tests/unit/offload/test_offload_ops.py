"""Room by copying down, prefixes back by swap-in, on the core. Blocks of 4 tokens, one ms each on a link."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mocker_core.commands import (
    ActivateDestination,
    CancelDestination,
    CancelSource,
    ReserveDestination,
    SubmitHandoffPrefill,
)
from mocker_core.events import BlocksStored, DestinationReserved, StorageTier
from mocker_core.request import DirectRequest, HandoffId, RequestId
from mocker_core.sched.state import RequestStatus
from tests.factories import make_core, make_request
from tests.harness.invariants import assert_drained
from tests.unit.offload.tier_driver import OFFLOAD, Driver

INSTANT = {f"bandwidth_{name}_gbps": 0.0 for name in ("g1_to_g2", "g2_to_g1", "g2_to_g3", "g3_to_g2")}


def ask(request_id: str, *, blocks: int, start: int, output: int = 1, **fields: Any) -> DirectRequest:
    """A prompt of full blocks and one token more, so that all of its full blocks can be reused."""
    return make_request(request_id, prompt=4 * blocks + 1, start=start, output=output, **fields)


def pushed_out(blocks: int = 3, **args: Any) -> Driver:
    """Content 100 has 3 blocks, the last `blocks` of them in G2 only; all other 8 slots are free."""
    driver = Driver(num_gpu_blocks=8, **args)
    driver.serve(ask("first", blocks=3, start=100))
    # A reservation that is cancelled takes slots without leaving anything behind.
    driver.apply(
        ReserveDestination(HandoffId("push"), make_request("push", prompt=4 * (5 + blocks), output=0))
    )
    deadline_ms = driver.core.next_deadline_ms()
    assert deadline_ms is not None
    assert deadline_ms == pytest.approx(driver.now_ms + blocks)
    driver.advance_to(deadline_ms)
    driver.apply(CancelDestination(HandoffId("push")))
    driver.lifecycle.clear()
    assert len(driver.mirror.stored(StorageTier.HOST)) == blocks
    assert driver.core.pool.free_blocks == 5 + blocks
    return driver


def test_blocks_go_down_before_their_slots_are_given_away() -> None:
    driver = Driver(num_gpu_blocks=5)
    driver.serve(ask("first", blocks=3, start=100))
    start_ms = driver.now_ms
    driver.receive(ask("other", blocks=4, start=200))
    result = driver.execute_pass()
    assert not result.scheduled
    # 2 slots are free, 3 are missing: all 3 inactive blocks go down and count as active until then.
    assert (driver.core.pool.in_copy_blocks, driver.core.metrics().active_decode_blocks) == (3, 3)
    assert driver.core.next_deadline_ms() == pytest.approx(start_ms + 3.0)
    driver.run()
    assert driver.finished[RequestId("other")].first_admit_ms == pytest.approx(start_ms + 3.0)
    assert len(driver.mirror.stored(StorageTier.HOST)) == 3


def test_asking_again_starts_no_more_copies() -> None:
    driver = Driver(num_gpu_blocks=6)
    driver.serve(ask("first", blocks=4, start=100))
    driver.receive(ask("other", blocks=2, start=200))
    for _ in range(5):
        driver.execute_pass()
        assert driver.core.pool.in_copy_blocks == 1
    driver.run()
    assert len(driver.mirror.stored(StorageTier.HOST)) == 1


def test_blocks_that_are_in_g2_already_leave_at_once() -> None:
    driver = pushed_out()
    driver.serve(ask("again", blocks=3, start=100))
    start_ms = driver.now_ms
    driver.serve(ask("other", blocks=7, start=200))
    assert driver.finished[RequestId("other")].first_admit_ms == start_ms
    assert len(driver.mirror.stored(StorageTier.HOST)) == 3
    assert driver.mirror.resident[StorageTier.DEVICE].isdisjoint(driver.mirror.resident[StorageTier.HOST])


def test_prefix_comes_back_from_g2_instead_of_being_computed() -> None:
    driver = pushed_out()
    start_ms = driver.now_ms
    driver.serve(ask("again", blocks=3, start=100))
    facts = driver.finished[RequestId("again")]
    assert facts.reused_input_tokens == 12
    assert facts.first_admit_ms == pytest.approx(start_ms + 3.0)
    stats = driver.core.offload_stats()
    assert stats is not None
    assert (stats.swap_ins_total, stats.parked_requests, stats.transfers_active) == (1, 0, 0)
    assert stats.g2_to_g1_bytes_total == 3_000_000
    # They stay in G2 and are on the device again.
    first = set(driver.mirror.stored(StorageTier.DEVICE)[:3])
    assert driver.mirror.resident[StorageTier.HOST] == driver.mirror.resident[StorageTier.DEVICE] == first


def parked(**args: Any) -> Driver:
    """The request `again` is parked: one block still on the device, two on their way back."""
    driver = pushed_out(blocks=2, **args)
    driver.receive(ask("again", blocks=3, start=100))
    result = driver.execute_pass()
    assert (result.scheduled, driver.ops.num_parked) == (False, 1)
    return driver


def test_parked_request_is_out_of_the_queue_but_counted() -> None:
    driver = parked()
    request = driver.core.requests[RequestId("again")]
    assert request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
    assert request not in driver.core.scheduler.waiting
    assert driver.core.is_empty()
    assert driver.core.metrics().waiting_requests == 1
    assert len(request.table.cached) == 1, "the device prefix is pinned"
    assert request.table.private == 2, "the target slots are reserved"
    assert driver.core.metrics().active_decode_blocks == 3
    driver.run()
    assert driver.finished[RequestId("again")].reused_input_tokens == 12


def test_swapped_in_request_returns_to_the_front() -> None:
    driver = parked(max_num_seqs=1)
    driver.receive(make_request("later", prompt=3, output=1, priority=9))
    deadline_ms = driver.core.next_deadline_ms()
    assert deadline_ms is not None
    driver.advance_to(deadline_ms)
    assert [request.request_id for request in driver.core.scheduler.waiting] == ["again", "later"]
    assert [admission.request_id for admission in driver.execute_pass().admissions] == ["again"]


def test_request_behind_a_parked_one_goes_on_in_the_same_pass() -> None:
    driver = pushed_out()
    driver.receive(ask("again", blocks=3, start=100), make_request("small", prompt=3, output=1))
    driver.execute_pass()
    assert RequestId("small") in driver.finished
    assert driver.ops.num_parked == 1


@pytest.mark.parametrize("when", ["waiting_for_room", "parked", "half_way", "back"])
def test_cancel_at_each_stage_frees_everything(when: str) -> None:
    driver = pushed_out()
    driver.serve(ask("other", blocks=7, start=200))
    driver.receive(ask("again", blocks=3, start=100, output=5))
    request = driver.core.requests[RequestId("again")]
    stages: dict[str, Callable[[], bool]] = {
        "waiting_for_room": lambda: driver.core.pool.in_copy_blocks > 0,
        "parked": lambda: request.status is RequestStatus.WAITING_FOR_REMOTE_KVS,
        "half_way": lambda: request.status is RequestStatus.WAITING_FOR_REMOTE_KVS,
        "back": lambda: driver.ops.swap_ins_total == 1,
    }
    for _ in range(20):
        if stages[when]():
            break
        driver.step()
    assert stages[when]()
    if when == "half_way":
        driver.advance_to(driver.now_ms + 1.0)
        assert request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
    assert driver.cancel("again")
    assert not driver.cancel("again")
    assert not driver.ops.num_parked
    driver.run()
    assert_drained(driver.core)
    # What it had read stays where it was, and another request can read it.
    driver.serve(ask("once_more", blocks=3, start=100))
    assert driver.finished[RequestId("once_more")].reused_input_tokens == 12


def test_running_request_that_lacks_a_block_waits_for_a_copy_and_preempts_nobody() -> None:
    driver = Driver(num_gpu_blocks=4, bandwidth_g1_to_g2_gbps=0.1)
    driver.serve(ask("first", blocks=1, start=100, output=1))
    driver.receive(make_request("grows", prompt=7, output=4), make_request("goes_on", prompt=2, output=3))
    start_ms = driver.now_ms
    driver.run()
    grows, goes_on = driver.finished[RequestId("grows")], driver.finished[RequestId("goes_on")]
    assert driver.core.metrics().vllm_preemptions_total == 0
    assert goes_on.last_token_ms == pytest.approx(start_ms, abs=1e-3)
    # One block over 0.1 GB/s takes 10 ms.
    assert grows.last_token_ms == pytest.approx(start_ms + 10.0, abs=1e-3)
    assert grows.output_tokens == 4


def test_running_request_preempts_when_nothing_is_inactive_or_in_copy() -> None:
    driver = Driver(num_gpu_blocks=4)
    driver.receive(make_request("a", prompt=7, output=8), make_request("b", prompt=7, output=8))
    driver.run()
    assert driver.core.metrics().vllm_preemptions_total > 0
    assert {facts.output_tokens for facts in driver.finished.values()} == {8}
    assert_drained(driver.core)


def test_preempted_request_gets_its_generated_blocks_back_from_g2() -> None:
    driver = Driver(num_gpu_blocks=6, num_g2_blocks=20)
    driver.receive(make_request("a", prompt=9, output=12), make_request("b", prompt=9, output=12))
    driver.run()
    stats = driver.core.offload_stats()
    assert stats is not None
    assert driver.core.metrics().vllm_preemptions_total > 0
    assert {facts.output_tokens for facts in driver.finished.values()} == {12}
    assert stats.g1_to_g2_bytes_total > 0


def test_room_is_never_made_with_blocks_that_the_request_reuses() -> None:
    driver = Driver(num_gpu_blocks=5)
    driver.serve(ask("first", blocks=2, start=100))
    driver.serve(ask("other", blocks=2, start=200))
    # Content 100 is the oldest and would be evicted first, but it is what the request wants.
    driver.serve(ask("longer", blocks=4, start=100))
    assert driver.finished[RequestId("longer")].reused_input_tokens == 8
    stored = driver.mirror.stored(StorageTier.DEVICE)
    assert set(driver.mirror.stored(StorageTier.HOST)) == set(stored[2:4])


def test_destination_that_copies_alone_cannot_help_starts_none() -> None:
    driver = Driver(num_gpu_blocks=6, worker_type="decode")
    driver.serve(ask("first", blocks=2, start=100))
    driver.apply(SubmitHandoffPrefill(HandoffId("s"), make_request("held", prompt=9)))
    driver.execute_pass()
    driver.lifecycle.clear()
    # 3 blocks are held, 2 inactive, 1 is free.
    driver.apply(ReserveDestination(HandoffId("h"), make_request("d", prompt=16, output=1)))
    assert driver.core.pool.in_copy_blocks == 0
    driver.apply(CancelSource(HandoffId("s")))
    assert driver.core.pool.in_copy_blocks == 2, "now copies can give it all it needs"
    deadline_ms = driver.core.next_deadline_ms()
    assert deadline_ms is not None
    driver.advance_to(deadline_ms)
    assert [type(event) for event in driver.lifecycle] == [DestinationReserved]


def test_destination_gets_the_room_of_a_request_that_is_back() -> None:
    driver = parked(bandwidth_g2_to_g1_gbps=0.1, worker_type="decode")
    driver.apply(ReserveDestination(HandoffId("h"), make_request("d", prompt=26, output=1)))
    assert (driver.lifecycle, driver.core.pool.in_copy_blocks) == ([], 0)
    deadline_ms = driver.core.next_deadline_ms()
    assert deadline_ms is not None
    driver.advance_to(deadline_ms)
    assert [type(event) for event in driver.lifecycle] == [DestinationReserved]


def test_request_whose_prefix_lacks_room_waits_and_does_not_compute_it() -> None:
    driver = pushed_out(max_num_batched_tokens=4)
    driver.serve(ask("other", blocks=6, start=200))
    # A first chunk of 4 tokens would fit into a free slot.
    assert driver.core.pool.free_blocks > 0
    driver.receive(ask("again", blocks=3, start=100))
    result = driver.execute_pass()
    assert (result.scheduled, driver.ops.num_parked) == (False, 0)
    assert driver.core.pool.in_copy_blocks > 0
    driver.run()
    assert driver.finished[RequestId("again")].reused_input_tokens == 12


def test_block_that_leaves_the_device_again_is_young_in_g2() -> None:
    driver = pushed_out()
    first = set(driver.ops.tiers.g2.identities())
    driver.serve(ask("other", blocks=4, start=200))
    driver.serve(ask("again", blocks=3, start=100))
    driver.serve(ask("third", blocks=2, start=300))  # two blocks of content 200 go down
    assert set(list(driver.ops.tiers.g2.identities())[:3]) == first
    # The other two of content 200 go down, and content 100 leaves the device once more.
    driver.apply(ReserveDestination(HandoffId("h"), make_request("d", prompt=24, output=1)))
    assert set(list(driver.ops.tiers.g2.identities())[-3:]) == first


def test_destination_reuses_device_blocks_and_waits_for_room_for_the_rest() -> None:
    driver = Driver(num_gpu_blocks=5, worker_type="decode")
    driver.serve(ask("first", blocks=2, start=100))
    driver.serve(ask("other", blocks=2, start=200))
    wanted = make_request("d", prompt=16, start=100, output=2)
    driver.apply(ReserveDestination(HandoffId("h"), wanted))
    assert driver.lifecycle == []
    deadline_ms = driver.core.next_deadline_ms()
    assert deadline_ms is not None
    driver.advance_to(deadline_ms)
    assert driver.lifecycle == [DestinationReserved(HandoffId("h"), RequestId("d"), 8)]
    driver.apply(ActivateDestination(HandoffId("h")))
    driver.run()
    assert RequestId("d") in driver.finished


def test_last_token_is_recomputed_even_if_g2_has_its_block() -> None:
    driver = Driver(num_gpu_blocks=5)
    driver.serve(make_request("first", prompt=12, start=100, output=1))
    driver.serve(ask("other", blocks=4, start=200))
    driver.serve(make_request("again", prompt=12, start=100, output=1))
    assert driver.finished[RequestId("again")].reused_input_tokens == 8
    stats = driver.core.offload_stats()
    assert stats is not None
    assert stats.g2_to_g1_bytes_total == 2_000_000


def test_prefix_comes_back_from_g3_through_g2() -> None:
    driver = Driver(num_gpu_blocks=5, num_g2_blocks=2, num_g3_blocks=50)
    for number in range(5):
        driver.serve(ask(f"r{number}", blocks=4, start=100 * (number + 1)))
    driver.serve(ask("again", blocks=4, start=100))
    assert driver.finished[RequestId("again")].reused_input_tokens == 16
    stats = driver.core.offload_stats()
    assert stats is not None
    assert stats.g3_to_g2_bytes_total == stats.g2_to_g1_bytes_total == 4_000_000
    assert (stats.g2_blocks_used, stats.g2_blocks_total, stats.g3_blocks_total) == (2, 2, 50)


def test_instant_links_cost_no_time() -> None:
    driver = Driver(num_gpu_blocks=5, num_g3_blocks=20, num_g2_blocks=2, **INSTANT)
    for number in range(5):
        driver.serve(ask(f"r{number}", blocks=4, start=100 * (number + 1)))
    start_ms = driver.now_ms
    driver.serve(ask("again", blocks=4, start=100))
    assert driver.finished[RequestId("again")].reused_input_tokens == 16
    assert driver.finished[RequestId("again")].first_admit_ms == start_ms
    assert driver.core.next_deadline_ms() is None


def test_host_event_carries_the_tokens_and_the_parent() -> None:
    driver = pushed_out()
    events = [event for event in driver.mirror.events if isinstance(event, BlocksStored)]
    told = {
        event.tier: {
            block.identity: (block.token_ids, event.blocks[at - 1].identity if at else event.parent)
            for event in events
            if event.tier is tier
            for at, block in enumerate(event.blocks)
        }
        for tier in (StorageTier.DEVICE, StorageTier.HOST)
        for event in [next(event for event in events if event.tier is tier)]
    }
    assert told[StorageTier.HOST]
    for identity, said in told[StorageTier.HOST].items():
        assert said == told[StorageTier.DEVICE][identity]
    assert (100, 101, 102, 103) in [tokens for tokens, _ in told[StorageTier.HOST].values()]


def test_origins_are_forgotten_with_the_last_place() -> None:
    driver = Driver(num_gpu_blocks=5, num_g2_blocks=2, num_g3_blocks=3)
    for number in range(12):
        driver.serve(ask(f"r{number}", blocks=4, start=100 * (number + 1)))
    assert driver.core.events is not None
    resident = set().union(*driver.mirror.resident.values())
    assert driver.core.events._origins is not None
    assert set(driver.core.events._origins) == resident


def test_without_prefix_caching_or_sizes_there_is_no_offload() -> None:
    for args in ({"enable_prefix_caching": False}, {"num_g2_blocks": 0}, {"kv_bytes_per_token": None}):
        core = make_core(**(OFFLOAD | args))
        assert core.offload is None
        assert core.scheduler.offload is None
        assert core.offload_stats() is None


def test_trtllm_never_preempts_while_copies_are_under_way() -> None:
    driver = Driver(num_gpu_blocks=8, engine_type="trtllm", bandwidth_g1_to_g2_gbps=0.5)
    for number in range(8):
        driver.receive(ask(f"r{number}", blocks=2, start=100 * (number % 4 + 1), output=9))
    driver.run()
    assert len(driver.finished) == 8
    assert_drained(driver.core)
