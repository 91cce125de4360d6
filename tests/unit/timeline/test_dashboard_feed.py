from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from app.dashboard.curves import SECONDS_KEPT, Curves
from app.dashboard.feed import LISTED, Frame, frame
from app.state import AppState
from app.timeline.tracker import PassFacts
from mocker_core.metrics import MockerMetrics
from mocker_core.sched.output import EnginePassResult
from tests.harness.asgi_stream import AsgiClient
from tests.unit.app.serving_fixtures import chat, served

SLOW = {"speedup_ratio": 20.0, "block_size": 16}


def a_pass(
    curves: Curves, end_ms: float, tokens: int, gaps: list[tuple[float, int]], preempted: int = 0
) -> None:
    result = EnginePassResult(end_ms - 1, end_ms, [], MockerMetrics(0, 0, 1, 0.0, 0, 0, 0), True, gaps=gaps)
    curves.on_pass(PassFacts(0, end_ms - 1, end_ms, 0, 0, 0, 0, tokens, preempted), result)


def test_curve_has_a_point_per_second_and_forgets_the_minute_before() -> None:
    curves = Curves()
    a_pass(curves, 500.0, 7, [])
    a_pass(curves, 61_200.0, 3, [(10.0, 2)], preempted=1)
    a_pass(curves, 61_900.0, 4, [(10.0, 4)])
    points = curves.points(62_500.0)
    assert len(points) == SECONDS_KEPT
    assert points[-1]["ago_s"] == 1
    assert (points[-1]["tokens_per_s"], points[-1]["preemptions"]) == (7, 1)
    assert points[-1]["itl_p50_ms"] == pytest.approx(10.0, rel=0.16)
    assert [point["tokens_per_s"] for point in points[:-1]] == [0] * (SECONDS_KEPT - 1)
    assert points[0]["itl_p99_ms"] is None


def test_ranks_may_be_a_little_out_of_step() -> None:
    curves = Curves()
    a_pass(curves, 2_001.0, 1, [])
    a_pass(curves, 1_999.0, 1, [])
    a_pass(curves, 2_002.0, 1, [])
    assert sum(point["tokens_per_s"] for point in curves.points(3_000.0)) == 3


def test_frame_shows_running_and_waiting_requests_with_their_progress() -> None:
    async def test(client: AsgiClient, state: AppState) -> Frame:
        body = chat("Hello " * 30, max_tokens=400, ignore_eos=True, stream=True)
        streams = [client.open("POST", "/v1/chat/completions", body) for _ in range(3)]
        await asyncio.gather(*(stream.wait_for_bodies(5) for stream in streams[:2]))
        seen = await frame(state)
        for stream in streams:
            stream.hang_up()
            await stream.finished()
        return seen

    seen = served(test, max_num_seqs=2, **SLOW)
    assert (seen["running_total"], seen["waiting_total"]) == (2, 1)
    assert [one["state"] for one in seen["running"]] == ["decode", "decode"]
    assert [one["state"] for one in seen["waiting"]] == ["queue"]
    for one in seen["running"]:
        assert 0 < one["output_tokens"] < one["planned_tokens"] == 400
        assert one["computed_tokens"] == one["prompt_tokens"] - one["cached_tokens"]
    (rank,) = seen["ranks"]
    blocks = dict(rank["blocks"])
    assert blocks.pop("total") == sum(blocks.values()) == 16384
    assert blocks["active"] > 0


def test_frame_stays_small_with_many_requests() -> None:
    async def test(client: AsgiClient, state: AppState) -> Frame:
        body = chat(max_tokens=300, ignore_eos=True, stream=True)
        streams = [client.open("POST", "/v1/chat/completions", body) for _ in range(LISTED + 40)]
        await streams[-1].wait_for_bodies(3)
        seen = await frame(state)
        for stream in streams:
            stream.hang_up()
            await stream.finished()
        return seen

    seen = served(test, max_num_seqs=512, **SLOW)
    assert len(seen["running"]) == LISTED
    assert seen["running_total"] == LISTED + 40


def test_event_stream_has_whole_frames_and_ends_after_its_limit() -> None:
    async def test(client: AsgiClient, state: AppState) -> list[Any]:
        await client.post("/v1/chat/completions", chat(max_tokens=3, ignore_eos=True))
        return (await client.get("/admin/events/dashboard?limit=2")).records()

    frames = cast(list[Frame], served(test))
    assert len(frames) == 2
    for seen in frames:
        assert set(seen) == set(Frame.__annotations__)
        assert seen["ended_total"] == 1
        assert seen["recent"][0]["output_tokens"] == 3
        assert seen["state"] == "ready"
