"""Source side of engine.md section 7: handoff prefills, held KV, release, cancel, expiry."""

from __future__ import annotations

import pytest

from mocker_core.commands import (
    Applied,
    CancelRequest,
    CancelSource,
    CommandResult,
    Noop,
    ReleaseSource,
    SchedulerCommand,
    Submit,
    SubmitHandoffPrefill,
    Submitted,
)
from mocker_core.engine.core import EngineCore
from mocker_core.errors import DuplicateIdError, RequestError
from mocker_core.events import OutputSignal, SourceExpired, SourceHeld
from mocker_core.request import HandoffId, RequestId
from tests.factories import make_core, make_request, run_passes
from tests.harness.invariants import assert_drained, assert_invariants

H = HandoffId("h")


def prefill_core(**values: object) -> EngineCore:
    return make_core(worker_type="prefill", **values)


def apply(core: EngineCore, command: SchedulerCommand, now_ms: float = 0.0) -> CommandResult:
    effects = core.apply_command(command, allow_destination_grant=True, now_ms=now_ms)
    assert_invariants(core)
    return effects.result


def submit(core: EngineCore, handoff: str = "h", request_id: str = "r", **fields: object) -> CommandResult:
    return apply(core, SubmitHandoffPrefill(HandoffId(handoff), make_request(request_id, **fields)))  # type: ignore[arg-type]


def test_submitted_prefill_is_answered_with_its_request_id() -> None:
    assert submit(prefill_core()) == Submitted(RequestId("r"))


def test_prefill_ends_after_one_hidden_token_and_keeps_its_blocks() -> None:
    core = prefill_core()
    submit(core, prompt=9, output=50)
    result = core.execute_pass(0.0)
    (signal,) = result.outputs
    assert (signal.request_id, signal.completed, signal.hidden) == ("r", True, True)
    assert signal.handoff_delay_ms is None
    assert result.lifecycle == [SourceHeld(H, RequestId("r"), None, 9)]
    assert core.is_empty()
    assert core.handoffs.num_held_sources == 1
    assert core.metrics().active_decode_blocks == 3
    assert core.metrics().running_requests == 0
    assert_invariants(core)


def test_prefill_without_a_planned_token_still_has_its_one() -> None:
    core = prefill_core()
    submit(core, output_token_ids=(), output=0)
    (signal,) = core.execute_pass(0.0).outputs
    assert signal.token_id is not None
    assert signal.completed


def test_hidden_token_carries_the_modelled_transfer_delay_of_the_full_prompt() -> None:
    core = prefill_core(kv_bytes_per_token=1_000_000, kv_transfer_bandwidth=2.0)
    submit(core, prompt=6)
    result = core.execute_pass(0.0)
    assert result.outputs[0].handoff_delay_ms == pytest.approx(3.0)
    (held,) = result.lifecycle
    assert isinstance(held, SourceHeld)
    assert held.transfer_delay_ms == pytest.approx(3.0)


def test_destination_missing_leaves_the_delay_to_the_destination() -> None:
    core = prefill_core(kv_bytes_per_token=1_000_000, kv_transfer_timing_mode="destination_missing")
    submit(core, prompt=6)
    assert core.execute_pass(0.0).outputs[0].handoff_delay_ms is None


def test_release_before_the_prefill_ended_is_a_noop_and_after_it_frees_the_kv() -> None:
    core = prefill_core()
    submit(core)
    assert apply(core, ReleaseSource(H)) == Noop()
    end_ms = core.execute_pass(0.0).end_ms
    assert apply(core, ReleaseSource(H), end_ms) == Applied()
    assert_drained(core)
    assert apply(core, ReleaseSource(H), end_ms) == Noop()


@pytest.mark.parametrize("passes", [0, 1])
def test_cancel_source_drops_it_waiting_or_held(passes: int) -> None:
    core = prefill_core()
    submit(core)
    for _ in range(passes):
        core.execute_pass(0.0)
    assert apply(core, CancelSource(H)) == Applied()
    assert_drained(core)
    assert apply(core, CancelSource(H)) == Noop()


def test_cancel_source_in_the_middle_of_its_chunks_frees_them() -> None:
    core = prefill_core(max_num_batched_tokens=4)
    submit(core, prompt=10)
    core.execute_pass(0.0)
    assert core.metrics().running_requests == 1
    assert apply(core, CancelSource(H)) == Applied()
    assert_drained(core)


@pytest.mark.parametrize("passes", [0, 1])
def test_cancel_request_command_reaches_a_source_too(passes: int) -> None:
    core = prefill_core()
    submit(core)
    for _ in range(passes):
        core.execute_pass(0.0)
    assert apply(core, CancelRequest(RequestId("r"))) == Applied()
    assert_drained(core)
    assert apply(core, CancelRequest(RequestId("r"))) == Noop()
    assert submit(core) == Submitted(RequestId("r"))


def test_duplicate_handoff_id_is_refused_and_the_first_is_unharmed() -> None:
    core = prefill_core()
    submit(core)
    with pytest.raises(DuplicateIdError, match="handoff id h is in use"):
        submit(core, request_id="other")
    assert list(core.requests) == ["r"]
    assert core.execute_pass(0.0).outputs[0].request_id == "r"


def test_duplicate_request_id_is_refused_and_leaves_no_handoff_behind() -> None:
    core = prefill_core()
    apply(core, Submit(make_request("r", local=True)))
    with pytest.raises(DuplicateIdError, match="request id r is in use"):
        submit(core)
    assert submit(core, request_id="other") == Submitted(RequestId("other"))


def test_bad_request_is_refused_and_leaves_no_handoff_behind() -> None:
    core = prefill_core()
    with pytest.raises(RequestError, match="at least 1 prompt token"):
        submit(core, tokens=())
    assert submit(core) == Submitted(RequestId("r"))


def test_rejected_prefill_frees_its_handoff_id() -> None:
    core = prefill_core()
    submit(core, prompt=25)
    assert core.execute_pass(0.0).outputs == [OutputSignal(RequestId("r"), None, True, rejected=True)]
    assert_drained(core)
    assert apply(core, CancelSource(H)) == Noop()
    assert submit(core) == Submitted(RequestId("r"))


def test_unreleased_source_expires_after_timeout_plus_transfer_delay_and_is_counted() -> None:
    core = prefill_core(
        kv_bytes_per_token=1_000_000, kv_transfer_bandwidth=1.0, handoff_session_timeout_ms=100
    )
    submit(core, prompt=4)
    end_ms = core.execute_pass(0.0).end_ms
    deadline_ms = core.next_deadline_ms()
    assert deadline_ms == pytest.approx(end_ms + 4.0 + 100.0)
    assert deadline_ms is not None
    assert core.advance(deadline_ms - 0.001, allow_destination_grant=False).lifecycle == ()
    effects = core.advance(deadline_ms, allow_destination_grant=False)
    assert effects.lifecycle == (SourceExpired(H, RequestId("r")),)
    assert core.handoffs.expired_sources_total == 1
    assert_drained(core)


def test_hold_that_is_due_expires_in_a_pass_and_gives_its_room_to_that_very_pass() -> None:
    core = prefill_core(handoff_session_timeout_ms=100)
    submit(core, prompt=16)
    end_ms = core.execute_pass(0.0).end_ms
    core.receive(make_request("next", prompt=12, output=1, local=True))
    blocked = core.execute_pass(end_ms + 99.9)
    assert (blocked.admissions, blocked.lifecycle) == ([], [])
    result = core.execute_pass(end_ms + 100.0)
    assert result.lifecycle == [SourceExpired(H, RequestId("r"))]
    assert [admission.request_id for admission in result.admissions] == ["next"]
    assert core.handoffs.expired_sources_total == 1
    assert_drained(core)


def test_timeout_leaves_out_the_longest_transfer_where_the_destination_decides_what_is_moved() -> None:
    core = prefill_core(
        kv_bytes_per_token=1_000_000,
        kv_transfer_bandwidth=1.0,
        kv_transfer_timing_mode="destination_missing",
        handoff_session_timeout_ms=100,
    )
    submit(core, prompt=4)
    end_ms = core.execute_pass(0.0).end_ms
    assert core.next_deadline_ms() == pytest.approx(end_ms + 4.0 + 100.0)


def test_released_source_does_not_expire_even_if_its_id_lives_again() -> None:
    core = prefill_core(handoff_session_timeout_ms=100)
    submit(core)
    end_ms = core.execute_pass(0.0).end_ms
    apply(core, ReleaseSource(H), end_ms)
    assert core.next_deadline_ms() is None
    submit(core)
    assert core.advance(end_ms + 1000, allow_destination_grant=False).lifecycle == ()
    assert core.handoffs.expired_sources_total == 0
    assert len(core.requests) == 1


def test_prefill_worker_charges_its_prompt_but_no_decode() -> None:
    core = prefill_core(timing_model={"type": "fixed", "prefill_ms": 10, "decode_ms": 3})
    submit(core)
    assert core.execute_pass(0.0).end_ms == 10.0


def test_local_request_on_a_prefill_worker_decodes_at_the_usual_price() -> None:
    core = prefill_core(timing_model={"type": "fixed", "prefill_ms": 10, "decode_ms": 3})
    apply(core, Submit(make_request("local", output=3, local=True)))
    assert [result.end_ms for result in run_passes(core)] == [10.0, 13.0, 16.0]
    assert_drained(core)


def test_handoff_prefill_beside_local_decodes_is_not_in_the_decode_batch() -> None:
    core = prefill_core(num_gpu_blocks=20, speedup_ratio=1.0)
    apply(core, Submit(make_request("local", prompt=4, output=3, local=True)))
    first = core.execute_pass(0.0)
    submit(core, prompt=8)
    second = core.execute_pass(first.end_ms)
    use = 5 / (20 * 4)  # only the local request's L of 5
    prefill_ms = 4.209989e-07 * 64 + 1.518344e-02 * 8 + 16.50142
    decode_ms = -25.74 * use * use + 54.01 * use + 5.74
    assert second.end_ms - first.end_ms == pytest.approx(prefill_ms + decode_ms)
