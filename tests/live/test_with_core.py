"""The live loop with the real core in virtual time: a plain pass loop's times, never early, no drift."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from mocker_core.commands import (
    ActivateDestination,
    Applied,
    ReleaseSource,
    ReserveDestination,
    SubmitHandoffPrefill,
)
from mocker_core.engine.core import EngineCore
from mocker_core.engine_args import MockEngineArgs
from mocker_core.events import DestinationExpired, DestinationReserved, SourceExpired, SourceHeld
from mocker_core.live.engine import MockEngine
from mocker_core.request import DirectRequest, HandoffId, RequestId
from tests.harness.virtual_loop import VirtualClock, run_virtual, spend_ms
from tests.live.fakes import RecordingListener, sleep_ms

H1 = HandoffId("h1")


def make_request(
    name: str, prompt_tokens: int, output_tokens: int, first_token: int = 0, *, local: bool = False
) -> DirectRequest:
    tokens = range(first_token, first_token + prompt_tokens)
    return DirectRequest(
        request_id=RequestId(name), tokens=tokens, max_output_tokens=output_tokens, local=local
    )


def run_core(
    scenario: Callable[[MockEngine, RecordingListener], Awaitable[None]], **args: Any
) -> RecordingListener:
    """Run a scenario on an engine of real cores in virtual time."""

    async def main() -> RecordingListener:
        clock = VirtualClock()
        listener = RecordingListener([], clock.now_ms)
        engine = MockEngine(MockEngineArgs(**args), listener, clock=clock)
        await engine.start()
        try:
            await scenario(engine, listener)
        finally:
            await engine.stop()
        assert engine.dead_reason == "The engine was stopped."
        return listener

    return run_virtual(main())


def run_offline(arrivals: Sequence[tuple[float, DirectRequest]], **args: Any) -> dict[RequestId, list[float]]:
    """The same core in a plain loop: what arrived joins before each pass, an idle core jumps to the next."""
    core = EngineCore(MockEngineArgs(**args), 0)
    waiting = list(arrivals)
    tokens: dict[RequestId, list[float]] = {}
    now_ms = 0.0
    while waiting or not core.is_empty():
        if core.is_empty():
            now_ms = max(now_ms, waiting[0][0])
        while waiting and waiting[0][0] <= now_ms + 1e-9:
            core.receive(waiting.pop(0)[1])
        result = core.execute_pass(now_ms)
        for signal in result.outputs:
            tokens.setdefault(signal.request_id, []).append(result.end_ms)
        now_ms = result.end_ms
    return tokens


def test_alone_the_first_token_and_the_gaps_are_the_model_s() -> None:
    async def scenario(engine: MockEngine, _: RecordingListener) -> None:
        engine.submit(make_request("a", 1000, 100))
        await sleep_ms(2000)

    tokens = run_core(scenario, block_size=16).tokens[RequestId("a")]
    assert len(tokens) == 100
    assert tokens[0] == pytest.approx(32.105859, abs=1e-6)
    assert (tokens[-1] - tokens[0]) / 99 == pytest.approx(5.955920, abs=1e-6)


def test_live_in_virtual_time_gives_the_times_of_a_plain_pass_loop() -> None:
    # Overlapping arrivals, a shared prefix, more tokens than the pool holds: preemptions and resumption.
    args: dict[str, Any] = {
        "block_size": 4,
        "num_gpu_blocks": 24,
        "max_num_seqs": 5,
        "max_num_batched_tokens": 48,
    }
    arrivals = [
        (
            3.7 * n + (n % 3) * 11.0,
            make_request(f"r{n}", 10 + 7 * (n % 5), 10 + 6 * (n % 7), first_token=n % 2),
        )
        for n in range(30)
    ]
    arrivals.sort(key=lambda item: item[0])

    async def scenario(engine: MockEngine, _: RecordingListener) -> None:
        for arrival_ms, request in arrivals:
            await sleep_ms(arrival_ms - engine.now_ms())
            engine.submit(request)
        await sleep_ms(60_000)
        assert engine.metrics(0).vllm_preemptions_total > 0
        assert engine.metrics(0).active_decode_blocks == 0

    live = run_core(scenario, **args).tokens
    offline = run_offline(arrivals, **args)
    assert live.keys() == offline.keys()
    for request_id, times in offline.items():
        assert live[request_id] == pytest.approx(times, abs=1e-6)


def test_busy_event_loop_makes_tokens_late_but_never_early_and_the_plan_does_not_drift() -> None:
    async def noise() -> None:
        while True:
            await sleep_ms(1.7)
            spend_ms(0.9)

    async def scenario(engine: MockEngine, _: RecordingListener) -> None:
        task = asyncio.get_running_loop().create_task(noise())
        engine.submit(make_request("a", 1000, 400))
        await sleep_ms(4000)
        task.cancel()
        assert engine.rank_stats(0).sum_lateness_ms > 10.0
        assert engine.rank_stats(0).re_anchors == 0

    listener = run_core(scenario, block_size=16)
    plan, sent = listener.tokens[RequestId("a")], listener.published_ms[RequestId("a")]
    quiet = run_offline([(0.0, make_request("a", 1000, 400))], block_size=16)[RequestId("a")]
    assert plan == pytest.approx(quiet, abs=1e-9)
    assert all(late >= -1e-9 for late in (at - end for at, end in zip(sent, plan, strict=True)))
    mean_sent = (sent[-1] - sent[0]) / 399
    assert mean_sent == pytest.approx((plan[-1] - plan[0]) / 399, rel=0.002)


def test_cancelled_requests_give_their_blocks_back_within_one_pass() -> None:
    async def scenario(engine: MockEngine, _: RecordingListener) -> None:
        for n in range(20):
            engine.submit(make_request(f"r{n}", 64, 500, first_token=1000 * n))
        await sleep_ms(200)
        for n in range(10):
            engine.cancel_soon(RequestId(f"r{n}"))
        await sleep_ms(20)
        survivors = engine.metrics(0)
        assert survivors.running_requests == 10
        for n in range(10, 20):
            assert await engine.cancel(RequestId(f"r{n}")) == Applied()
        await sleep_ms(20)
        assert engine.metrics(0).running_requests == 0
        assert engine.metrics(0).active_decode_blocks == 0

    run_core(scenario, block_size=16)


def test_many_requests_at_high_speed_all_end_with_exact_counts() -> None:
    async def scenario(engine: MockEngine, _: RecordingListener) -> None:
        for n in range(300):
            engine.submit(make_request(f"r{n}", 30, 100, first_token=n))
        await sleep_ms(5000)
        for rank in range(2):
            assert engine.metrics(rank).running_requests == 0
            assert engine.metrics(rank).active_decode_blocks == 0

    listener = run_core(scenario, speedup_ratio=1000.0, dp_size=2)
    assert {name: len(times) for name, times in listener.tokens.items()} == {f"r{n}": 100 for n in range(300)}


def test_destination_reserved_in_a_long_pass_is_told_at_its_boundary() -> None:
    async def scenario(engine: MockEngine, listener: RecordingListener) -> None:
        engine.submit(make_request("a", 8000, 3, local=True))  # its prefill models more than 100 ms
        await sleep_ms(20)
        await engine.command(ReserveDestination(H1, make_request("dst", 40, 3, first_token=9000)))
        activation = asyncio.get_running_loop().create_task(engine.command(ActivateDestination(H1)))
        await sleep_ms(50)
        assert listener.lifecycle == []
        await activation
        await sleep_ms(1)
        assert isinstance(listener.lifecycle[0], DestinationReserved)
        boundary_ms = listener.tokens[RequestId("a")][0]
        assert engine.now_ms() >= boundary_ms > 100.0
        assert (await engine.command(ActivateDestination(H1))).result == Applied()
        await sleep_ms(1000)

    listener = run_core(scenario, worker_type="decode", block_size=16)
    assert len(listener.tokens[RequestId("dst")]) == 3


@pytest.mark.parametrize("by", ["cancellation", "call"])
def test_what_ends_outside_a_pass_lets_the_next_destination_in_though_no_pass_follows(by: str) -> None:
    async def scenario(engine: MockEngine, listener: RecordingListener) -> None:
        await engine.command(ReserveDestination(H1, make_request("a", 60, 1)))
        await engine.command(ReserveDestination(HandoffId("h2"), make_request("b", 60, 1, first_token=500)))
        await sleep_ms(10)
        assert [event.handoff_id for event in listener.lifecycle] == ["h1"]
        if by == "cancellation":
            engine.cancel_soon(RequestId("a"))
        else:
            assert await engine.call_core(0, lambda core, now_ms: core.cancel(RequestId("a"), now_ms))
        await sleep_ms(1)
        assert [event.handoff_id for event in listener.lifecycle] == ["h1", "h2"]
        assert engine.metrics(0).active_decode_blocks == 4

    run_core(scenario, worker_type="decode", block_size=16, num_gpu_blocks=4)


def test_held_source_that_nobody_releases_expires_while_the_rank_is_idle() -> None:
    async def scenario(engine: MockEngine, listener: RecordingListener) -> None:
        await engine.command(SubmitHandoffPrefill(H1, make_request("src", 40, 1)))
        await sleep_ms(100)
        assert isinstance(listener.lifecycle[0], SourceHeld)
        assert engine.metrics(0).active_decode_blocks > 0
        await sleep_ms(500)
        assert isinstance(listener.lifecycle[1], SourceExpired)
        assert engine.metrics(0).active_decode_blocks == 0
        assert (await engine.command(ReleaseSource(H1))).result.__class__.__name__ == "Noop"
        await engine.command(SubmitHandoffPrefill(H1, make_request("src", 40, 1)))

    run_core(scenario, worker_type="prefill", block_size=16, handoff_session_timeout_ms=300.0)


def test_held_source_expires_though_the_request_that_lacks_its_room_is_all_that_waits() -> None:
    async def scenario(engine: MockEngine, listener: RecordingListener) -> None:
        await engine.command(SubmitHandoffPrefill(H1, make_request("src", 40, 1)))
        await sleep_ms(100)
        engine.submit(make_request("plain", 60, 2, first_token=500, local=True))
        await sleep_ms(150)
        assert engine.metrics(0).running_requests == 0
        await sleep_ms(1000)
        assert [type(event) for event in listener.lifecycle] == [SourceHeld, SourceExpired]

    listener = run_core(
        scenario, worker_type="prefill", block_size=16, num_gpu_blocks=4, handoff_session_timeout_ms=300.0
    )
    assert len(listener.tokens[RequestId("plain")]) == 2


def test_destination_that_nobody_activates_expires_during_passes() -> None:
    async def scenario(engine: MockEngine, listener: RecordingListener) -> None:
        await engine.command(ReserveDestination(H1, make_request("dst", 40, 1)))
        engine.submit(make_request("a", 100, 200, first_token=500))
        await sleep_ms(600)
        assert [type(event) for event in listener.lifecycle] == [DestinationReserved, DestinationExpired]
        await sleep_ms(3000)
        assert engine.metrics(0).active_decode_blocks == 0

    run_core(scenario, worker_type="decode", block_size=16, handoff_session_timeout_ms=300.0)
