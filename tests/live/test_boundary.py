"""Every branch of the loop's waits: idle, during a pass, after a pass, without progress."""

from __future__ import annotations

import asyncio

import pytest

from mocker_core.commands import (
    ActivateDestination,
    Applied,
    CancelDestination,
    CancelRequest,
    CancelSource,
    DestinationAccepted,
    Noop,
    ReleaseSource,
    ReserveDestination,
    Submit,
    SubmitHandoffPrefill,
    Submitted,
)
from mocker_core.errors import DuplicateIdError, EngineDeadError, RequestError
from mocker_core.events import DestinationReserved
from mocker_core.request import HandoffId, RequestId
from tests.live.fakes import Live, make_request, run_live, sleep_ms

A, B = RequestId("a"), RequestId("b")
H1, H2 = HandoffId("h1"), HandoffId("h2")


# Idle


def test_idle_rank_runs_no_pass_and_wakes_for_a_request_at_once() -> None:
    async def scenario(live: Live) -> None:
        await sleep_ms(50)
        assert live.core.passes == 0
        live.submit("a")
        await sleep_ms(20)

    live = run_live(scenario)
    assert live.logged("receive", "pass", "on_outputs") == [
        ("receive", "a"),
        ("pass", 50.0),
        ("on_outputs", ["a"], 60.0),
    ]


def test_idle_rank_serves_cancellation_then_command_then_request() -> None:
    async def scenario(live: Live) -> None:
        await live.engine.command(ReserveDestination(H1, make_request("old")))
        await sleep_ms(5)
        live.log.clear()
        waiting = live.send(CancelDestination(H2))
        await asyncio.sleep(0)
        # The command has just been sent; all three are there before the rank's task runs.
        live.submit("new")
        live.engine.cancel_soon(RequestId("old"))
        await waiting
        await sleep_ms(5)

    live = run_live(scenario, worker_type="decode")
    order = [entry[:2] for entry in live.logged("cancel", "command", "receive", "pass")]
    assert order == [("cancel", "old"), ("command", "CancelDestination"), ("receive", "new"), ("pass", 5.0)]


def test_idle_rank_ticks_at_its_deadline_and_may_grant() -> None:
    async def scenario(live: Live) -> None:
        live.core.may_grant = False
        live.core.deadline_ms = 30.0
        await live.engine.command(ReserveDestination(H1, make_request("dst")))
        live.core.may_grant = True
        await sleep_ms(50)

    live = run_live(scenario, worker_type="decode")
    assert live.logged("advance") == [("advance", 30.0, True)]
    assert live.listener.lifecycle == [DestinationReserved(H1, RequestId("dst"), 4)]
    assert live.core.passes == 0


def test_idle_deadline_that_stays_due_wakes_once_per_ms() -> None:
    async def scenario(live: Live) -> None:
        live.core.deadline_stays = True
        live.core.deadline_ms = 0.0
        live.submit("a")
        await sleep_ms(10.5)  # idle again from 10 ms on
        live.log.clear()
        await sleep_ms(10)

    live = run_live(scenario)
    times = [now_ms for _, now_ms, _ in live.logged("advance")]
    assert times == [11.0 + step for step in range(10)]


def test_after_an_idle_wait_all_commands_and_then_all_requests_are_drained() -> None:
    async def scenario(live: Live) -> None:
        for name in ("a", "b"):
            live.submit(name)
        waiting = [live.send(Submit(make_request(name))) for name in ("c", "d")]
        await asyncio.gather(*waiting)
        await sleep_ms(20)

    live = run_live(scenario, worker_type="prefill")
    assert [entry[:2] for entry in live.logged("command", "receive", "pass")] == [
        ("command", "Submit"),
        ("command", "Submit"),
        ("receive", "a"),
        ("receive", "b"),
        ("pass", 0.0),
    ]


# During a pass


def test_request_received_during_a_pass_joins_the_next_one() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=2)
        await sleep_ms(5)
        live.submit("b")
        await sleep_ms(30)

    live = run_live(scenario)
    assert live.listener.tokens == {"a": [10.0, 20.0], "b": [20.0]}
    assert live.logged("receive", "pass") == [
        ("receive", "a"),
        ("pass", 0.0),
        ("receive", "b"),
        ("pass", 10.0),
    ]


@pytest.mark.parametrize("worker_type", ["aggregated", "prefill", "decode"])
def test_cancellation_during_a_pass_frees_at_once_and_suppresses_its_output(worker_type: str) -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=5)
        live.submit("b", tokens=5)
        await sleep_ms(12)
        metrics_before = live.engine.metrics(0)
        assert await live.engine.cancel(A) == Applied()
        assert live.engine.now_ms() == 12.0
        assert A not in live.core.left  # freed now
        assert live.engine.metrics(0) == metrics_before  # told at the boundary
        await sleep_ms(10)
        assert live.engine.metrics(0).running_requests == 1

    live = run_live(scenario, worker_type=worker_type)
    assert live.listener.tokens["a"] == [10.0]
    assert live.listener.tokens["b"] == [10.0, 20.0]


def test_cancellation_of_a_request_that_ends_in_this_very_pass_is_applied_and_shows_no_output() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=1)
        await sleep_ms(5)
        assert await live.engine.cancel(A) == Applied()
        assert await live.engine.cancel(A) == Noop()
        live.submit("a", tokens=1)  # the id is free again, and its new owner unharmed
        await sleep_ms(30)

    live = run_live(scenario)
    assert live.listener.tokens == {"a": [20.0]}


def test_cancellation_of_a_request_still_in_the_intake_withdraws_it() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=2)
        await sleep_ms(5)
        live.submit("b")
        assert await live.engine.cancel(B) == Applied()
        await sleep_ms(30)

    live = run_live(scenario)
    assert "b" not in live.listener.tokens
    assert ("receive", "b") not in live.log


def test_safe_commands_apply_during_a_pass_but_grant_and_report_nothing_before_the_boundary() -> None:
    async def scenario(live: Live) -> None:
        live.core.pass_ms = 300.0
        live.submit("a", tokens=2)
        await sleep_ms(50)
        accepted = await live.engine.command(ReserveDestination(H1, make_request("dst", 2)))
        assert accepted.result == DestinationAccepted(RequestId("dst"))
        assert live.engine.now_ms() == 50.0
        activation = live.send(ActivateDestination(H1))
        await sleep_ms(249)
        assert live.listener.lifecycle == []
        assert not activation.done()
        await sleep_ms(2)
        assert live.listener.lifecycle == [DestinationReserved(H1, RequestId("dst"), 4)]
        # Sent before the reservation was granted, so it came too early at the boundary.
        assert activation.result().result == Noop()
        again = live.send(ActivateDestination(H1))
        await sleep_ms(300)
        assert again.result().result == Applied()

    live = run_live(scenario, worker_type="decode")
    commands = live.logged("command", "retry")
    assert commands[:4] == [
        ("command", "ReserveDestination", False, 50.0),
        ("command", "ActivateDestination", True, 300.0),
        ("retry", 300.0),
        ("command", "ActivateDestination", True, 600.0),
    ]


def test_first_other_command_closes_the_intake_and_the_order_stays() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=3)
        await sleep_ms(2)
        waiting = [
            live.send(SubmitHandoffPrefill(H1, make_request("p1"))),
            live.send(CancelRequest(RequestId("p1"))),
            live.send(SubmitHandoffPrefill(H2, make_request("p2"))),
            live.send(CancelSource(H2)),
        ]
        await sleep_ms(6)
        assert [task.done() for task in waiting] == [True, False, False, False]
        results = [effects.result for effects in await asyncio.gather(*waiting)]
        assert results == [Submitted(RequestId("p1")), Applied(), Submitted(RequestId("p2")), Applied()]

    live = run_live(scenario, worker_type="prefill")
    assert live.logged("command") == [
        ("command", "SubmitHandoffPrefill", False, 2.0),
        ("command", "CancelRequest", True, 10.0),
        ("command", "SubmitHandoffPrefill", True, 10.0),
        ("command", "CancelSource", True, 10.0),
    ]


def test_deadline_during_a_pass_moves_transfers_only() -> None:
    async def scenario(live: Live) -> None:
        live.core.may_grant = False
        live.submit("a", tokens=1)
        await sleep_ms(1)
        live.core.deadline_ms = 4.0
        await live.engine.command(ReserveDestination(H1, make_request("dst")))  # wakes the wait
        live.core.may_grant = True
        await sleep_ms(8)
        assert live.listener.lifecycle == []
        await sleep_ms(2)

    live = run_live(scenario, worker_type="decode")
    assert live.logged("advance") == [("advance", 4.0, False)]
    assert len(live.listener.lifecycle) == 1


def test_deadline_that_stays_due_during_a_pass_wakes_once_per_ms_and_never_past_the_end() -> None:
    async def scenario(live: Live) -> None:
        live.core.deadline_stays = True
        live.core.deadline_ms = 7.0
        live.submit("a", tokens=1)
        await sleep_ms(9.9)

    live = run_live(scenario)
    assert [now_ms for _, now_ms, _ in live.logged("advance")] == [7.0, 8.0, 9.0]


def test_pass_end_goes_before_a_deadline_of_the_same_instant() -> None:
    async def scenario(live: Live) -> None:
        live.core.deadline_ms = 10.0
        live.submit("a", tokens=1)
        await sleep_ms(9)
        live.log.clear()
        await sleep_ms(3)

    live = run_live(scenario)
    assert [entry[0] for entry in live.logged("on_outputs", "advance")] == ["on_outputs", "advance"]
    assert live.logged("advance") == [("advance", 11.0, True)]  # due already: 1 ms later


def test_aggregated_worker_takes_no_command_from_its_channel() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=2)
        await sleep_ms(30)

    assert run_live(scenario).logged("retry") == []


def test_shutdown_during_a_pass_drops_the_unpublished_pass() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=5)
        await sleep_ms(12)
        waiting = live.send(CancelSource(H1))
        await sleep_ms(1)
        await live.engine.stop()
        assert live.engine.now_ms() == pytest.approx(13.0)  # at once, not at the pass end
        with pytest.raises(EngineDeadError, match="was stopped"):
            await waiting

    live = run_live(scenario, worker_type="prefill")
    assert live.listener.tokens == {"a": [10.0]}
    assert live.listener.dead == [(0, ["a"], "The engine was stopped.")]


def test_receiver_that_is_gone_drops_the_request_and_frees_it_at_that_boundary() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=9)
        live.submit("b", tokens=3)
        live.listener.gone.add(A)
        await sleep_ms(11)
        assert list(live.core.left) == ["b"]
        assert live.engine.metrics(0).running_requests == 1
        live.submit("a")  # no id stays behind

    assert run_live(scenario).listener.tokens["a"] == [10.0]


def test_gone_receiver_of_a_hidden_token_leaves_the_held_source_to_its_handoff() -> None:
    async def scenario(live: Live) -> None:
        live.listener.gone.add(A)
        await live.engine.command(SubmitHandoffPrefill(H1, make_request("a")))
        await sleep_ms(15)
        released = await live.engine.command(ReleaseSource(H1))
        assert released.result == Applied()

    run_live(scenario, worker_type="prefill")


# Without progress


def test_pass_without_progress_waits_instead_of_spinning() -> None:
    async def scenario(live: Live) -> None:
        live.core.blocked = True
        live.submit("a")
        await sleep_ms(1000)
        assert live.core.passes == 1

    run_live(scenario)


@pytest.mark.parametrize("wake", ["cancellation", "command", "request", "deadline"])
def test_each_source_wakes_a_rank_without_progress_once(wake: str) -> None:
    async def scenario(live: Live) -> None:
        live.core.blocked = True
        if wake == "deadline":
            live.core.deadline_ms = 40.0
        live.submit("a")
        live.submit("b")
        await sleep_ms(40)
        if wake == "cancellation":
            assert await live.engine.cancel(A) == Applied()
        elif wake == "command":
            assert (await live.engine.command(CancelRequest(A))).result == Applied()
        elif wake == "request":
            live.submit("c")
        live.core.deadline_ms = None
        await sleep_ms(10)

    live = run_live(scenario, worker_type="decode")
    assert [now_ms for _, now_ms in live.logged("pass")] == [0.0, 40.0]
    assert live.logged("advance") == []  # there a deadline only wakes


def test_due_deadline_without_progress_retries_once_per_ms() -> None:
    async def scenario(live: Live) -> None:
        live.core.blocked = True
        live.core.deadline_ms = 0.0
        live.submit("a")
        await sleep_ms(5.5)

    live = run_live(scenario)
    assert [now_ms for _, now_ms in live.logged("pass")] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_granted_destination_counts_as_progress() -> None:
    async def scenario(live: Live) -> None:
        live.core.may_grant = False
        await live.engine.command(ReserveDestination(H1, make_request("dst")))
        live.core.blocked = True
        live.core.may_grant = True
        live.submit("a")
        await sleep_ms(1)
        assert live.core.passes == 2  # the second, after the grant, made none

    run_live(scenario, worker_type="decode")


def test_pass_of_no_time_with_progress_gives_the_event_loop_one_turn() -> None:
    async def scenario(live: Live) -> None:
        live.core.pass_ms = 0.0
        live.submit("a", tokens=50)
        turns = 0
        while "a" not in live.listener.ended:
            await asyncio.sleep(0)
            turns += 1
        assert 50 <= turns <= 55
        assert live.engine.now_ms() == 0.0

    live = run_live(scenario)
    flushes = live.logged("on_outputs", "flush")
    assert flushes[:4] == [("on_outputs", ["a"], 0.0), ("flush",)] * 2


def test_shutdown_without_progress_ends_the_loop() -> None:
    async def scenario(live: Live) -> None:
        live.core.blocked = True
        live.submit("a")
        await sleep_ms(5)

    assert run_live(scenario).listener.dead[0][1] == ["a"]


# Refusals and back-pressure


def test_refused_command_is_its_sender_s_error_and_leaves_no_id_behind() -> None:
    async def scenario(live: Live) -> None:
        bad = make_request("x", local=False)
        bad = type(bad)(request_id=bad.request_id, tokens=range(13), max_output_tokens=1)
        for command in (Submit(bad), SubmitHandoffPrefill(H1, bad), ReserveDestination(H1, bad)):
            with pytest.raises(RequestError, match="13 tokens"):
                await live.engine.command(command)
        good = await live.engine.command(ReserveDestination(H1, make_request("x")))
        assert good.result == DestinationAccepted(RequestId("x"))

    run_live(scenario, worker_type="decode")


def test_duplicate_ids_are_refused_to_that_sender_only() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=3)
        with pytest.raises(DuplicateIdError):
            live.submit("a")
        with pytest.raises(DuplicateIdError):
            await live.engine.command(Submit(make_request("a")))
        await live.engine.command(ReserveDestination(H1, make_request("dst")))
        with pytest.raises(DuplicateIdError, match="handoff id h1"):
            await live.engine.command(ReserveDestination(H1, make_request("other")))
        with pytest.raises(DuplicateIdError, match="request id dst"):
            await live.engine.command(SubmitHandoffPrefill(H2, make_request("dst")))
        live.submit("other")
        await sleep_ms(50)

    assert run_live(scenario, worker_type="decode").listener.ended == {"a": 1, "other": 1}


def test_full_command_channel_makes_senders_wait_and_keeps_their_order() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=2)
        await sleep_ms(1)
        # Capacity is 2 x max_num_seqs = 2; the first of them is deferred and makes room for one more.
        waiting = [live.send(CancelSource(HandoffId(f"h{n}"))) for n in range(8)]
        await sleep_ms(1)
        gone = waiting.pop(6)
        gone.cancel()
        done = await asyncio.gather(*waiting)
        assert all(effects.result == Noop() for effects in done)

    live = run_live(scenario, worker_type="prefill", max_num_seqs=1)
    assert len(live.logged("command")) == 7


def test_sender_cancelled_outside_the_full_channel_leaves_no_id_behind() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=3)
        await sleep_ms(1)
        waiting = [live.send(CancelSource(HandoffId(f"h{n}"))) for n in range(3)]
        claimed = live.send(ReserveDestination(H1, make_request("dst")))
        await sleep_ms(1)
        claimed.cancel()
        await asyncio.gather(claimed, return_exceptions=True)
        await asyncio.gather(*waiting)
        await live.engine.command(ReserveDestination(H1, make_request("dst")))

    live = run_live(scenario, worker_type="decode", max_num_seqs=1)
    assert len([entry for entry in live.logged("command") if entry[1] == "ReserveDestination"]) == 1


def test_sender_that_went_away_after_its_command_was_taken_changes_nothing() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=2)
        await sleep_ms(1)
        waiting = live.send(Submit(make_request("late")))
        await sleep_ms(1)
        waiting.cancel()
        await sleep_ms(40)

    assert run_live(scenario, worker_type="prefill").listener.ended == {"a": 1, "late": 1}


def test_full_lifecycle_channel_makes_the_loop_wait_without_losing_an_event() -> None:
    async def scenario(live: Live) -> None:
        for n in range(9):  # capacity 2
            waiting = live.send(SubmitHandoffPrefill(HandoffId(f"h{n}"), make_request(f"r{n}")))
        await waiting
        await sleep_ms(50)

    live = run_live(scenario, worker_type="prefill", max_num_seqs=1)
    assert [event.handoff_id for event in live.listener.lifecycle] == [f"h{n}" for n in range(9)]


def test_cancellation_is_served_while_the_lifecycle_channel_is_full() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=9)
        for n in range(9):
            waiting = live.send(SubmitHandoffPrefill(HandoffId(f"h{n}"), make_request(f"r{n}")))
        await waiting
        live.listener.on_first_lifecycle = lambda: live.engine.cancel_soon(A)
        await sleep_ms(15)

    live = run_live(scenario, worker_type="prefill", max_num_seqs=1)
    order = [entry[0] for entry in live.logged("cancel", "on_lifecycle")]
    assert order.count("on_lifecycle") == 9
    assert 0 < order.index("cancel") < 8
