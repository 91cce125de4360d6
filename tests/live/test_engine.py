"""`MockEngine`: states, the choice of a rank, ids, and an end that leaves nobody waiting."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import Any

import pytest

from mocker_core.commands import (
    ActivateDestination,
    Applied,
    CancelRequest,
    CancelSource,
    Noop,
    ReserveDestination,
    Submit,
    SubmitHandoffPrefill,
)
from mocker_core.engine_args import MockEngineArgs
from mocker_core.errors import DuplicateIdError, EngineDeadError, RequestError, WrongWorkerTypeError
from mocker_core.live.engine import EngineState, MockEngine
from mocker_core.request import DirectRequest, HandoffId, RequestId
from tests.harness.virtual_loop import VirtualClock, run_virtual
from tests.live.fakes import FakeCore, Live, RecordingListener, make_request, run_live, sleep_ms

A = RequestId("a")
H1 = HandoffId("h1")


def make_engine(**args: Any) -> tuple[MockEngine, RecordingListener]:
    listener = RecordingListener([])
    engine = MockEngine(
        MockEngineArgs(**args), listener, clock=VirtualClock(), core_factory=lambda _, rank: FakeCore(rank)
    )
    return engine, listener


# States


def test_startup_time_passes_before_the_engine_is_ready() -> None:
    async def main() -> None:
        engine, _ = make_engine(startup_time=2.5)
        states = [engine.state]
        assert engine.metrics(0).total_blocks == 16384
        start = asyncio.get_running_loop().create_task(engine.start())
        await sleep_ms(2499)
        states.append(engine.state)
        with pytest.raises(EngineDeadError, match="still starting"):
            engine.submit(make_request("a"))
        engine.cancel_soon(A)
        await start
        assert engine.now_ms() == 2500.0
        states.append(engine.state)
        await engine.stop()
        states.append(engine.state)
        assert states == [EngineState.STARTING, EngineState.STARTING, EngineState.READY, EngineState.DEAD]

    run_virtual(main())


def test_stop_while_starting_ends_the_start() -> None:
    async def main() -> None:
        engine, _ = make_engine(startup_time=100.0)
        start = asyncio.get_running_loop().create_task(engine.start())
        await sleep_ms(5)
        await engine.stop()
        with pytest.raises(EngineDeadError, match="was stopped"):
            await start
        assert engine.now_ms() < 6

    run_virtual(main())


def test_engine_starts_once_only() -> None:
    async def main() -> None:
        engine, _ = make_engine()
        await engine.start()
        with pytest.raises(RuntimeError, match="started already"):
            await engine.start()
        await engine.stop()
        await engine.stop()

    run_virtual(main())


def test_stopped_engine_refuses_everything_in_one_clear_sentence() -> None:
    async def scenario(live: Live) -> None:
        await live.engine.stop()
        with pytest.raises(EngineDeadError, match="was stopped"):
            live.submit("a")
        with pytest.raises(EngineDeadError):
            await live.engine.cancel(A)
        with pytest.raises(EngineDeadError):
            await live.engine.command(CancelRequest(A))
        live.engine.cancel_soon(A)

    run_live(scenario, worker_type="decode")


# Crashes


def test_crash_of_one_rank_kills_the_engine_and_tells_every_request_of_every_rank(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=50, dp_rank=0)
        live.submit("b", tokens=50, dp_rank=1)
        await sleep_ms(25)
        live.submit("c", tokens=50, dp_rank=0)  # still in its intake when the rank dies
        live.cores[1].fails = ZeroDivisionError("no blocks at all")
        await sleep_ms(10)
        assert live.engine.state is EngineState.DEAD
        assert live.engine.dead_reason is not None
        assert "rank 1" in live.engine.dead_reason
        assert "no blocks at all" in live.engine.dead_reason
        with pytest.raises(EngineDeadError, match="no blocks at all"):
            live.submit("d")

    with caplog.at_level(logging.CRITICAL):
        live = run_live(scenario, dp_size=2)
    assert {rank: ids for rank, ids, _ in live.listener.dead} == {0: ["a", "c"], 1: ["b"]}
    assert all("no blocks at all" in reason for _, _, reason in live.listener.dead)


@pytest.mark.parametrize("where", ["on_outputs", "on_lifecycle"])
def test_listener_that_raises_kills_the_engine_instead_of_hanging_it(where: str) -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=50)
        live.listener.fails_in = where
        live.send(ReserveDestination(H1, make_request("dst")))
        await sleep_ms(15)
        assert live.engine.state is EngineState.DEAD

    live = run_live(scenario, worker_type="decode")
    (_, ids, reason) = live.listener.dead[0]
    assert ids == ["a", "dst"]
    assert where in reason


def test_listener_that_raises_in_on_dead_keeps_no_other_rank_from_being_told() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=50, dp_rank=0)
        live.submit("b", tokens=50, dp_rank=1)
        await sleep_ms(5)
        live.listener.fails_in = "on_dead"

    assert [rank for rank, _, _ in run_live(scenario, dp_size=2).listener.dead] == [0, 1]


def test_crash_before_another_rank_took_its_first_step_leaves_nobody_waiting() -> None:
    async def scenario(live: Live) -> None:
        live.cores[0].fails = ZeroDivisionError()
        live.submit("a", dp_rank=0)
        live.submit("b", dp_rank=1)  # its loop never ran so far
        cancel = asyncio.get_running_loop().create_task(live.engine.cancel(RequestId("b")))
        assert await cancel == Applied()

    live = run_live(scenario, dp_size=2)
    assert live.engine.state is EngineState.DEAD
    assert [ids for _, ids, _ in live.listener.dead] == [["a"]]


# Nobody is left waiting


@pytest.mark.parametrize("blocked", [False, True])
def test_stop_answers_every_waiting_caller(blocked: bool) -> None:
    async def scenario(live: Live) -> None:
        live.core.blocked = blocked
        live.submit("a", tokens=5)
        await sleep_ms(3)
        commands = [live.send(CancelSource(HandoffId(f"h{n}"))) for n in range(6)]
        reserve = live.send(ReserveDestination(H1, make_request("dst")))
        await asyncio.sleep(0)
        cancel = asyncio.get_running_loop().create_task(live.engine.cancel(A))
        await asyncio.sleep(0)
        await live.engine.stop()
        assert await cancel == Applied()
        for result in await asyncio.gather(*commands, reserve, return_exceptions=True):
            assert isinstance(result, EngineDeadError) or not isinstance(result, BaseException)

    live = run_live(scenario, worker_type="decode", max_num_seqs=1)
    assert all("a" not in ids for _, ids, _ in live.listener.dead)


def test_dropping_the_last_reference_shuts_the_loops_down() -> None:
    async def main() -> None:
        engine, listener = make_engine(dp_size=2)
        await engine.start()
        engine.submit(make_request("a", tokens=1000))
        await sleep_ms(15)
        before = asyncio.all_tasks()
        assert len(before) == 6
        del engine
        gc.collect()
        await sleep_ms(1)
        assert len(asyncio.all_tasks()) == 1
        assert listener.dead[0][1] == ["a"]

    run_virtual(main())


def test_end_of_the_program_without_stop_tells_every_request() -> None:
    kept: list[object] = []

    async def main() -> RecordingListener:
        engine, listener = make_engine()
        kept.append(engine)
        await engine.start()
        engine.submit(make_request("a", tokens=1000))
        await sleep_ms(15)
        return listener

    assert run_virtual(main()).dead == [(0, ["a"], "The engine's task was cancelled.")]


@pytest.mark.parametrize("turns", range(14))
def test_owner_cancelled_at_any_await_leaves_nobody_waiting(turns: int) -> None:
    async def main() -> None:
        engine, listener = make_engine(worker_type="prefill", max_num_seqs=1)
        await engine.start()
        loop = asyncio.get_running_loop()
        waiting = [
            loop.create_task(engine.command(SubmitHandoffPrefill(HandoffId(f"h{n}"), make_request(f"r{n}"))))
            for n in range(7)
        ]
        engine.submit(make_request("a", tokens=3))
        for _ in range(turns):
            await (asyncio.sleep(0) if turns % 2 else sleep_ms(2.5))
        assert engine._owner is not None
        engine._owner.cancel()
        await asyncio.wait([engine._owner])
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(not isinstance(result, asyncio.CancelledError) for result in results)
        ended = set(listener.ended) | {name for _, ids, _ in listener.dead for name in ids}
        assert "a" in ended
        assert engine.state is EngineState.DEAD

    run_virtual(main())


# Ranks and ids


def test_request_goes_to_the_rank_with_the_fewest_and_the_lowest_of_equals() -> None:
    async def scenario(live: Live) -> None:
        # None of them was received so far: what is submitted counts at once.
        assert [live.submit(f"r{n}", tokens=3 if n else 1) for n in range(4)] == [0, 1, 2, 0]
        assert live.submit("x", dp_rank=1) == 1
        assert live.submit("y") == 2
        await sleep_ms(15)  # r0 has ended
        assert live.submit("z") == 0
        await live.engine.cancel(RequestId("r2"))
        await live.engine.cancel(RequestId("y"))
        assert live.submit("w") == 2

    run_live(scenario, dp_size=3)


def test_request_can_name_its_rank() -> None:
    async def scenario(live: Live) -> None:
        assert live.engine.submit(make_request("a", dp_rank=2)) == 2
        with pytest.raises(RequestError, match="dp_rank is 3"):
            live.engine.submit(make_request("b", dp_rank=3))
        with pytest.raises(RequestError, match="dp_rank is -1"):
            live.engine.metrics(-1)

    run_live(scenario, dp_size=3)


def test_held_source_does_not_count_as_load() -> None:
    async def scenario(live: Live) -> None:
        command = SubmitHandoffPrefill(H1, make_request("src"))
        await live.engine.command(command, dp_rank=0)
        await sleep_ms(15)
        assert live.submit("a") == 0
        with pytest.raises(DuplicateIdError):  # yet its id is alive
            live.submit("src")

    run_live(scenario, worker_type="prefill", dp_size=2)


def test_id_is_unique_across_ranks_and_free_again_after_its_end() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", dp_rank=0)
        with pytest.raises(DuplicateIdError, match="request id a is in use"):
            live.submit("a", dp_rank=1)
        await sleep_ms(11)
        live.submit("a", dp_rank=1)
        await sleep_ms(15)

    assert run_live(scenario, dp_size=2).listener.ended == {"a": 2}


def test_command_about_a_handoff_goes_to_the_rank_that_has_it() -> None:
    async def scenario(live: Live) -> None:
        await live.engine.command(ReserveDestination(H1, make_request("dst", 5)), dp_rank=1)
        await sleep_ms(1)
        assert (await live.engine.command(ActivateDestination(H1))).result == Applied()
        assert (await live.engine.command(CancelRequest(RequestId("dst")))).result == Applied()
        assert (await live.engine.command(ActivateDestination(HandoffId("none")))).result == Noop()
        # The handoff ended with its request, so the id is free.
        await live.engine.command(ReserveDestination(H1, make_request("dst")))

    run_live(scenario, worker_type="decode", dp_size=2)


def test_command_on_an_aggregated_worker_says_what_to_start() -> None:
    async def scenario(live: Live) -> None:
        with pytest.raises(WrongWorkerTypeError, match="--disaggregation-mode prefill"):
            await live.engine.command(Submit(make_request("a")))

    run_live(scenario)


def test_cancel_command_reaches_a_request_that_is_still_in_the_intake() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=3)
        await sleep_ms(2)
        live.submit("b", tokens=3)
        assert (await live.engine.command(CancelRequest(RequestId("b")))).result == Applied()
        live.submit("b", tokens=1)
        await sleep_ms(40)

    assert run_live(scenario, worker_type="prefill").listener.ended == {"a": 1, "b": 1}


@pytest.mark.parametrize("bad", [{"tokens": ()}, {"max_output_tokens": -1}])
def test_request_that_no_rank_can_take_is_refused_to_its_sender(bad: dict[str, Any]) -> None:
    async def scenario(live: Live) -> None:
        values: dict[str, Any] = {"request_id": A, "tokens": (1,), "max_output_tokens": 1} | bad
        with pytest.raises(RequestError, match="at least 1 prompt token"):
            live.engine.submit(DirectRequest(**values))
        live.submit("a")

    run_live(scenario)


def test_unknown_request_is_a_noop() -> None:
    async def scenario(live: Live) -> None:
        assert await live.engine.cancel(A) == Noop()
        live.engine.cancel_soon(A)

    run_live(scenario)
