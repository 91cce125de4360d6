"""Destination side of engine.md section 7: reserve, grant, activate, cancel, expiry."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mocker_core.commands import (
    ActivateDestination,
    Applied,
    CancelDestination,
    CancelRequest,
    CommandEffects,
    DestinationAccepted,
    Noop,
    ReleaseSource,
    ReserveDestination,
    SchedulerCommand,
    Submit,
    SubmitHandoffPrefill,
)
from mocker_core.engine.core import EngineCore
from mocker_core.errors import DuplicateIdError, RequestError, WrongWorkerTypeError
from mocker_core.events import BlocksStored, DestinationExpired, DestinationReserved, OutputSignal
from mocker_core.request import HandoffId, RequestId
from tests.factories import make_core, make_request, run_passes
from tests.harness.invariants import assert_drained, assert_invariants

FIXED = {"type": "fixed", "prefill_ms": 10, "decode_ms": 3}


def decode_core(**values: object) -> EngineCore:
    return make_core(worker_type="decode", **values)


def apply(
    core: EngineCore, command: SchedulerCommand, now_ms: float = 0.0, *, grant: bool = True
) -> CommandEffects:
    effects = core.apply_command(command, allow_destination_grant=grant, now_ms=now_ms)
    assert_invariants(core)
    return effects


def reserve(core: EngineCore, name: str = "h", *, grant: bool = True, **fields: object) -> CommandEffects:
    """Handoff `name` with request `r-name`."""
    request = make_request(f"r-{name}", **fields)  # type: ignore[arg-type]
    return apply(core, ReserveDestination(HandoffId(name), request), grant=grant)


def activate(core: EngineCore, name: str = "h") -> CommandEffects:
    return apply(core, ActivateDestination(HandoffId(name)))


def cancel(core: EngineCore, name: str = "h") -> CommandEffects:
    return apply(core, CancelDestination(HandoffId(name)))


def granted(effects: object) -> list[str]:
    return [event.handoff_id for event in effects.lifecycle]  # type: ignore[attr-defined]


def test_reservation_with_room_is_accepted_and_granted_at_once() -> None:
    core = decode_core()
    effects = reserve(core, prompt=9)
    assert effects.result == DestinationAccepted(RequestId("r-h"))
    assert effects.lifecycle == (DestinationReserved(HandoffId("h"), RequestId("r-h"), 12),)
    assert core.metrics().active_decode_blocks == 3
    assert core.metrics().waiting_requests == 1
    assert core.is_empty()


def test_reservation_while_a_pass_is_modelled_is_granted_at_the_boundary() -> None:
    core = decode_core()
    assert reserve(core, grant=False).lifecycle == ()
    assert core.handoffs.has_pending
    effects = core.retry_destinations(0.0)
    assert effects.granted
    assert granted(effects) == ["h"]
    assert not core.retry_destinations(0.0).granted


def test_activated_destination_decodes_without_a_prefill_and_caches_its_full_prompt_blocks() -> None:
    core = decode_core(timing_model=FIXED)
    reserve(core, prompt=9, output=3)
    effects = activate(core)
    assert effects.result == Applied()
    (stored,) = effects.kv_events
    assert isinstance(stored, BlocksStored)
    assert len(stored.blocks) == 2
    results = run_passes(core)
    assert [result.end_ms for result in results] == [3.0, 6.0, 9.0]
    assert [len(result.outputs) for result in results] == [1, 1, 1]
    assert results[0].admissions[0].reused_input_tokens == 0
    assert_drained(core)


def test_destination_without_output_ends_in_no_time_and_without_a_token() -> None:
    core = decode_core()
    reserve(core, prompt=8, output=0)
    activate(core)
    result = core.execute_pass(5.0)
    assert result.outputs == [OutputSignal(RequestId("r-h"), None, True)]
    assert result.end_ms == 5.0
    assert_drained(core)


def test_activate_is_a_noop_while_pending_when_unknown_and_when_repeated() -> None:
    core = decode_core()
    assert activate(core).result == Noop()
    reserve(core, grant=False)
    assert activate(core).result == Noop()
    core.retry_destinations(0.0)
    assert activate(core).result == Applied()
    assert activate(core).result == Noop()


def test_prompt_larger_than_the_pool_is_refused_and_leaves_nothing() -> None:
    core = decode_core()
    with pytest.raises(RequestError, match="the prompt has 25 tokens"):
        reserve(core, prompt=25)
    assert_drained(core)
    assert reserve(core).result == DestinationAccepted(RequestId("r-h"))


def test_destination_that_could_never_finish_is_refused() -> None:
    core = decode_core()
    assert reserve(core, prompt=20, output=5).result == DestinationAccepted(RequestId("r-h"))
    with pytest.raises(RequestError, match="may grow by 6"):
        reserve(core, "i", prompt=20, output=6)


def test_prompt_of_max_model_len_is_refused() -> None:
    core = decode_core(max_model_len=8)
    with pytest.raises(RequestError, match="max_model_len is 8"):
        reserve(core, prompt=8)
    assert reserve(core, prompt=7).result == DestinationAccepted(RequestId("r-h"))


def test_duplicate_ids_are_refused_and_the_first_is_unharmed() -> None:
    core = decode_core()
    reserve(core)
    with pytest.raises(DuplicateIdError, match="handoff id h is in use"):
        apply(core, ReserveDestination(HandoffId("h"), make_request("other")))
    with pytest.raises(DuplicateIdError, match="request id r-h is in use"):
        apply(core, ReserveDestination(HandoffId("other"), make_request("r-h")))
    assert activate(core).result == Applied()
    assert cancel(core, "other").result == Noop()


def test_trtllm_refuses_reservations_by_name() -> None:
    core = decode_core(engine_type="trtllm")
    with pytest.raises(WrongWorkerTypeError, match="engine_type trtllm can't reserve a destination"):
        reserve(core)
    assert_drained(core)


def test_pending_destinations_are_granted_in_order_and_one_at_a_time() -> None:
    core = decode_core()
    for name in ("a", "b", "c"):
        reserve(core, name, grant=False)
    assert [granted(core.retry_destinations(0.0)) for _ in range(4)] == [["a"], ["b"], ["c"], []]


def test_small_destination_does_not_overtake_a_head_that_does_not_fit() -> None:
    core = decode_core()
    reserve(core, "holder", prompt=16)
    assert granted(reserve(core, "big", prompt=12)) == []
    assert granted(reserve(core, "small", prompt=4)) == []
    assert granted(cancel(core, "big")) == ["small"]


def test_refused_head_is_not_tried_again_until_capacity_changed() -> None:
    core = decode_core()
    prompt = tuple(range(1, 17))
    reserve(core, "holder", tokens=prompt)
    assert granted(reserve(core, "head", tokens=(*prompt, 90, 91, 92, 93, 94, 95, 96, 97), output=0)) == []
    # The activation makes four of its blocks hits, so it would fit; but that is no change of capacity.
    assert granted(activate(core, "holder")) == []
    assert granted(core.retry_destinations(0.0)) == []
    core.receive(make_request("x", local=True))
    assert core.cancel(RequestId("x"), 0.0)
    assert granted(core.retry_destinations(0.0)) == ["head"]


def completed(core: EngineCore) -> list[str]:
    core.execute_pass(5.0)
    return granted(core.retry_destinations(9.0))


def preempted(core: EngineCore) -> list[str]:
    assert core.preempt_all(5.0) == 1
    return granted(core.retry_destinations(5.0))


def cancelled(core: EngineCore) -> list[str]:
    return granted(apply(core, CancelRequest(RequestId("local"))))


def released(core: EngineCore) -> list[str]:
    core.execute_pass(5.0)  # the local request completes, but the source is still in the way
    assert granted(core.retry_destinations(9.0)) == []
    return granted(apply(core, ReleaseSource(HandoffId("s"))))


@pytest.mark.parametrize("change", [completed, preempted, cancelled, released])
def test_refused_head_is_tried_again_after(change: Callable[[EngineCore], list[str]]) -> None:
    core = decode_core()
    core.receive(make_request("local", prompt=7, output=2, local=True))
    if change is released:
        apply(core, SubmitHandoffPrefill(HandoffId("s"), make_request("source", prompt=8)))
    core.execute_pass(0.0)
    assert granted(reserve(core, "head", prompt=20, output=0)) == []
    assert granted(core.retry_destinations(4.0)) == []
    assert change(core) == ["head"]


def test_only_what_was_applied_comes_with_a_grant_attempt() -> None:
    core = decode_core()
    reserve(core, grant=False)
    assert granted(cancel(core, "unknown")) == []
    assert granted(apply(core, Submit(make_request("local", prompt=1, local=True)))) == []
    assert granted(apply(core, SubmitHandoffPrefill(HandoffId("s"), make_request("source", prompt=1)))) == []
    assert granted(apply(core, CancelRequest(RequestId("local")))) == ["h"]


def test_waiting_destinations_go_by_priority_and_by_the_order_of_their_reservations() -> None:
    core = decode_core(max_num_seqs=1)
    for name, priority in (("first", 0), ("second", 0), ("urgent", 1)):
        reserve(core, name, priority=priority, output=1)
    for name in ("second", "first", "urgent"):
        activate(core, name)
    order = [a.request_id for result in run_passes(core) for a in result.admissions]
    assert order == ["r-urgent", "r-first", "r-second"]


def test_rejection_in_a_pass_is_no_change_of_capacity() -> None:
    core = decode_core()
    generation = core.scheduler.capacity_generation
    core.receive(make_request("too-long", prompt=25, local=True))
    assert core.execute_pass(0.0).outputs[0].rejected
    assert core.scheduler.capacity_generation == generation


def test_none_is_granted_while_max_num_seqs_run() -> None:
    core = decode_core(max_num_seqs=1)
    core.receive(make_request("local", output=3, local=True))
    now_ms = core.execute_pass(0.0).end_ms
    assert granted(reserve(core)) == []
    assert granted(core.retry_destinations(now_ms)) == []
    run_passes_until_idle = [core.execute_pass(now_ms + i) for i in range(2)]
    assert run_passes_until_idle[-1].completed == 1
    assert granted(core.retry_destinations(now_ms)) == ["h"]


def test_only_kv_in_place_is_admitted_while_a_destination_is_pending() -> None:
    core = decode_core()
    reserve(core, "ready", prompt=8)
    activate(core, "ready")
    reserve(core, "stuck", prompt=20, output=1)
    core.receive(make_request("before", priority=5, local=True))
    result = core.execute_pass(0.0)
    assert [admission.request_id for admission in result.admissions] == ["r-ready"]
    assert core.metrics().waiting_requests == 2


def test_reservation_pins_the_resident_prefix_whole_even_the_last_block() -> None:
    core = decode_core()
    prompt = tuple(range(1, 9))
    core.receive(make_request("first", tokens=prompt, output=1, local=True))
    core.execute_pass(0.0)
    assert core.metrics().active_decode_blocks == 0
    (event,) = reserve(core, tokens=prompt).lifecycle
    assert isinstance(event, DestinationReserved)
    assert event.transferable_prompt_tokens == 0
    assert core.metrics().active_decode_blocks == 2
    cancel(core)
    assert core.pool.inactive_blocks == 2
    assert_drained(core)


def test_fresh_blocks_of_a_reservation_are_what_is_transferable() -> None:
    core = decode_core()
    core.receive(make_request("first", tokens=range(1, 5), output=1, local=True))
    core.execute_pass(0.0)
    (event,) = reserve(core, tokens=tuple(range(1, 11))).lifecycle
    assert isinstance(event, DestinationReserved)
    assert event.transferable_prompt_tokens == 8


@pytest.mark.parametrize("stage", ["pending", "reserved", "active", "running"])
def test_cancel_returns_all_blocks_at_every_stage(stage: str) -> None:
    core = decode_core()
    reserve(core, grant=stage != "pending", prompt=9, output=6)
    if stage in ("active", "running"):
        activate(core)
    if stage == "running":
        core.execute_pass(0.0)
    assert cancel(core).result == Applied()
    assert_drained(core)
    assert cancel(core).result == Noop()


def test_cancel_request_drops_a_reservation_too() -> None:
    core = decode_core()
    reserve(core)
    assert apply(core, CancelRequest(RequestId("r-h"))).result == Applied()
    assert_drained(core)


def test_cancel_of_one_grants_the_next_in_the_same_command() -> None:
    core = decode_core()
    reserve(core, "a", prompt=20, output=1)
    assert granted(reserve(core, "b", prompt=8)) == []
    assert granted(cancel(core, "a")) == ["b"]


def test_preempted_destination_recomputes_at_no_prefill_price_and_finishes() -> None:
    core = decode_core(timing_model=FIXED)
    reserve(core, "a", prompt=11, output=9)
    reserve(core, "b", prompt=11, output=9)
    activate(core, "a")
    activate(core, "b")
    results = run_passes(core)
    assert core.metrics().vllm_preemptions_total > 0
    tokens = [signal.request_id for result in results for signal in result.outputs]
    assert (tokens.count(RequestId("r-a")), tokens.count(RequestId("r-b"))) == (9, 9)
    assert all(result.end_ms - result.start_ms <= 3.0 for result in results)
    assert_drained(core)


def test_head_that_lacks_what_waiting_destinations_hold_does_not_stop_them() -> None:
    core = decode_core()
    for name in ("a", "b", "c"):
        reserve(core, name, prompt=8, output=12)
    activate(core, "a")
    core.execute_pass(0.0)
    core.execute_pass(10.0)  # alone, it gives up its blocks and then needs more than are free
    assert (core.metrics().vllm_preemptions_total, core.metrics().running_requests) == (1, 0)
    activate(core, "b")
    activate(core, "c")
    results = run_passes(core, 20.0)
    ended = [signal.request_id for result in results for signal in result.outputs if signal.completed]
    assert sorted(ended) == ["r-a", "r-b", "r-c"]
    assert_drained(core)


def test_local_request_on_a_decode_worker_pays_for_its_prefill() -> None:
    core = decode_core(timing_model=FIXED)
    apply(core, Submit(make_request("local", output=2, local=True)))
    assert [result.end_ms for result in run_passes(core)] == [10.0, 13.0]


def test_destination_that_nobody_activates_expires_and_is_counted() -> None:
    core = decode_core(
        kv_bytes_per_token=1_000_000, kv_transfer_bandwidth=1.0, handoff_session_timeout_ms=100
    )
    reserve(core, "a", prompt=20, output=1)
    reserve(core, "b", prompt=8)
    assert core.next_deadline_ms() == pytest.approx(120.0)
    effects = core.advance(120.0, allow_destination_grant=True)
    assert effects.lifecycle == (
        DestinationExpired(HandoffId("a"), RequestId("r-a")),
        DestinationReserved(HandoffId("b"), RequestId("r-b"), 8),
    )
    assert effects.granted
    assert core.handoffs.expired_destinations_total == 1
    assert core.next_deadline_ms() == pytest.approx(120.0 + 8.0 + 100.0)
    assert_invariants(core)


def test_time_alone_grants_nothing_where_the_caller_forbids_it() -> None:
    core = decode_core(handoff_session_timeout_ms=100)
    reserve(core, "a", prompt=20, output=1)
    reserve(core, "b", prompt=8)
    assert granted(core.advance(100.0, allow_destination_grant=False)) == ["a"]
    assert core.handoffs.has_pending
    assert granted(core.retry_destinations(100.0)) == ["b"]


def test_activated_destination_has_no_deadline() -> None:
    core = decode_core()
    reserve(core)
    assert core.next_deadline_ms() is not None
    activate(core)
    assert core.next_deadline_ms() is None
