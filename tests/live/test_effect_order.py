"""The whole order of effects, asserted from one log (docs/pass-boundary.md)."""

from __future__ import annotations

import asyncio

from mocker_core.commands import (
    Applied,
    CancelDestination,
    CancelSource,
    DestinationAccepted,
    ReserveDestination,
    Submit,
    SubmitHandoffPrefill,
)
from mocker_core.live.publisher import EffectKind
from mocker_core.request import HandoffId, RequestId
from tests.live.fakes import Live, make_request, run_live, sleep_ms

H1, H2, H3 = HandoffId("h1"), HandoffId("h2"), HandoffId("h3")


def test_pass_with_everything_in_it_publishes_in_the_order_of_the_contract() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=5)
        live.submit("b", tokens=5)
        await sleep_ms(11)  # in the second pass
        live.listener.gone.add(RequestId("b"))
        live.log.clear()
        await sleep_ms(1)
        live.core.deadline_ms = 14.0
        waiting = [live.send(SubmitHandoffPrefill(H1, make_request("src")))]
        await sleep_ms(0.5)
        waiting.append(live.send(ReserveDestination(H2, make_request("dst"))))
        await sleep_ms(3)
        cancelled = await live.engine.cancel(RequestId("a"))
        assert cancelled == Applied()
        waiting.append(live.send(CancelSource(H3)))
        waiting.append(live.send(Submit(make_request("late", 3))))
        await sleep_ms(20)
        await asyncio.gather(*waiting)

    live = run_live(scenario, worker_type="prefill")
    assert live.log[: live.log.index(("pass", 20.0)) + 6] == [
        ("command", "SubmitHandoffPrefill", False, 12.0),
        ("flush",),
        ("command", "ReserveDestination", False, 12.5),
        ("flush",),
        ("advance", 14.0, False),
        ("flush",),
        ("cancel", "a", 15.5),
        ("flush",),
        ("flush",),
        # the first command of another kind closed the intake; now the boundary of the pass of 10 to 20 ms
        ("on_kv_events", [2]),  # had in the pass, by the deadline
        ("on_fpm", 2),
        ("on_outputs", ["b"], 20.0),  # a is suppressed
        ("cancel", "b", 20.0),  # its receiver is gone
        ("on_kv_events", [3, 4]),  # the clean-ups of a and b
        ("on_metrics",),
        ("command", "CancelSource", True, 20.0),
        ("on_metrics",),
        ("command", "Submit", True, 20.0),
        ("on_metrics",),
        ("retry", 20.0),
        ("on_metrics",),
        ("pass", 20.0),
        ("on_pass_start", ["src", "late"]),
        ("on_kv_events", [5]),
        ("flush",),
        ("on_lifecycle", "DestinationReserved"),
        ("flush",),
    ]


def test_effects_with_replies_and_lifecycle_follow_one_another_as_stated() -> None:
    async def scenario(live: Live) -> None:
        live.effects.clear()
        accepted = await live.engine.command(ReserveDestination(H1, make_request("dst")))
        assert accepted.result == DestinationAccepted(RequestId("dst"))
        await sleep_ms(1)

    live = run_live(scenario, worker_type="decode")
    kinds = [effect.kind for effect in live.effects]
    assert kinds == [EffectKind.REPLY, EffectKind.LIFECYCLE, EffectKind.METRICS]


def test_command_outside_a_pass_publishes_kv_events_then_reply_then_metrics() -> None:
    async def scenario(live: Live) -> None:
        await live.engine.command(ReserveDestination(H1, make_request("dst")))
        await sleep_ms(1)
        live.effects.clear()
        await live.engine.command(CancelDestination(H1))

    live = run_live(scenario, worker_type="decode")
    assert [effect.kind for effect in live.effects] == [
        EffectKind.KV_EVENTS,
        EffectKind.REPLY,
        EffectKind.METRICS,
    ]


def test_source_held_is_published_after_its_hidden_output_and_before_the_metrics() -> None:
    async def scenario(live: Live) -> None:
        await live.engine.command(SubmitHandoffPrefill(H1, make_request("src")))
        await sleep_ms(15)

    live = run_live(scenario, worker_type="prefill")
    assert [effect.kind for effect in live.effects] == [
        EffectKind.REPLY,
        EffectKind.METRICS,
        EffectKind.PASS_START,
        EffectKind.KV_EVENTS,
        EffectKind.FPM,
        EffectKind.OUTPUTS,
        EffectKind.LIFECYCLE,
        EffectKind.METRICS,
    ]


def test_source_cancelled_in_the_pass_that_completes_it_is_never_reported_held() -> None:
    async def scenario(live: Live) -> None:
        await live.engine.command(SubmitHandoffPrefill(H1, make_request("src")))
        await sleep_ms(5)
        assert await live.engine.cancel(RequestId("src")) == Applied()
        await sleep_ms(20)
        assert not live.core.sources

    live = run_live(scenario, worker_type="prefill")
    assert live.listener.lifecycle == []
    assert live.listener.tokens == {}


def test_kv_events_leave_in_the_order_of_their_ids_even_if_a_cleanup_came_first() -> None:
    async def scenario(live: Live) -> None:
        live.submit("a", tokens=3)
        live.submit("b", tokens=3)
        await sleep_ms(2)
        await live.engine.cancel(RequestId("a"))
        live.core.deadline_ms = 5.0
        waiting = live.send(ReserveDestination(H1, make_request("dst")))
        await sleep_ms(30)
        await waiting

    live = run_live(scenario, worker_type="decode")
    ids = [event_id for _, event_ids in live.logged("on_kv_events") for event_id in event_ids]
    assert ids == sorted(ids)
    assert len(ids) == 3
