"""Order, bounds and closing of the channels of a rank."""

from __future__ import annotations

import asyncio

import pytest

from mocker_core.commands import Applied, CancelSource, CommandEffects
from mocker_core.errors import EngineDeadError
from mocker_core.events import SourceExpired
from mocker_core.live.channels import (
    COMMAND,
    LIFECYCLE_SPACE,
    REQUEST,
    CommandChannel,
    CommandEnvelope,
    LifecycleChannel,
    Reply,
    RequestIntake,
)
from mocker_core.request import HandoffId, RequestId
from tests.harness.virtual_loop import run_virtual
from tests.live.fakes import make_request


def make_envelope(number: int) -> CommandEnvelope:
    return CommandEnvelope(CancelSource(HandoffId(str(number))), float(number), Reply())


def test_command_channel_lets_waiting_senders_in_one_by_one_in_order() -> None:
    async def main() -> None:
        notified: list[int] = []
        channel = CommandChannel(2, notified.append)
        envelopes = [make_envelope(n) for n in range(5)]
        senders = [asyncio.ensure_future(channel.send(envelope)) for envelope in envelopes]
        await asyncio.sleep(0)
        assert [sender.done() for sender in senders] == [True, True, False, False, False]
        assert notified == [COMMAND, COMMAND]
        assert channel.first_received_ms() == 0.0
        assert [channel.take() for _ in range(5)] == envelopes
        assert len(channel) == 0
        assert channel.first_received_ms() is None
        await asyncio.gather(*senders)

    run_virtual(main())


def test_new_sender_does_not_overtake_a_waiting_one() -> None:
    async def main() -> None:
        channel = CommandChannel(1, lambda _: None)
        first, second, third = (make_envelope(n) for n in range(3))
        await channel.send(first)
        waiting = asyncio.ensure_future(channel.send(second))
        await asyncio.sleep(0)
        assert channel.take() is first  # lets the second in
        late = asyncio.ensure_future(channel.send(third))
        await asyncio.sleep(0)
        assert not late.done()
        assert [channel.take(), channel.take()] == [second, third]
        await asyncio.gather(waiting, late)

    run_virtual(main())


def test_cancelled_sender_can_withdraw_what_stands_outside_only() -> None:
    async def main() -> None:
        channel = CommandChannel(1, lambda _: None)
        first, second, third = (make_envelope(n) for n in range(3))
        await channel.send(first)
        waiting = [asyncio.ensure_future(channel.send(envelope)) for envelope in (second, third)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
        assert channel.withdraw(second)
        assert not channel.withdraw(first)
        assert [channel.take(), channel.take()] == [first, third]
        await waiting[1]

    run_virtual(main())


def test_sender_cancelled_but_not_yet_withdrawn_is_passed_over() -> None:
    async def main() -> None:
        channel = CommandChannel(1, lambda _: None)
        await channel.send(make_envelope(0))
        waiting = [asyncio.ensure_future(channel.send(make_envelope(n))) for n in (1, 2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        channel.take()
        assert channel.take().received_ms == 2.0
        await asyncio.gather(*waiting, return_exceptions=True)

    run_virtual(main())


def test_closed_command_channel_gives_its_error_to_all_senders_and_returns_what_was_left() -> None:
    async def main() -> None:
        channel = CommandChannel(1, lambda _: None)
        first = make_envelope(0)
        await channel.send(first)
        waiting = asyncio.ensure_future(channel.send(make_envelope(1)))
        await asyncio.sleep(0)
        assert channel.close(EngineDeadError("it ended")) == [first]
        for sender in (waiting, channel.send(make_envelope(2))):
            with pytest.raises(EngineDeadError, match="it ended"):
                await sender

    run_virtual(main())


def test_reply_to_a_caller_that_went_away_is_ignored() -> None:
    async def main() -> None:
        reply: Reply[CommandEffects] = Reply()
        waiting = asyncio.ensure_future(reply.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        reply.send(CommandEffects(Applied()))
        reply.fail(EngineDeadError("too late"))

    run_virtual(main())


def test_lifecycle_channel_is_bounded_and_tells_of_room() -> None:
    async def main() -> None:
        notified: list[int] = []
        channel = LifecycleChannel(2, notified.append)
        events = [SourceExpired(HandoffId(str(n)), RequestId("r")) for n in range(3)]
        assert [channel.try_send(event) for event in events] == [True, True, False]
        assert await channel.receive() == events[0]
        assert notified == [LIFECYCLE_SPACE]
        assert channel.try_send(events[2])
        channel.close()
        assert [await channel.receive() for _ in range(3)] == [events[1], events[2], None]

    run_virtual(main())


def test_lifecycle_reader_waits_for_an_event_or_the_end() -> None:
    async def main() -> None:
        channel = LifecycleChannel(2, lambda _: None)
        reader = asyncio.ensure_future(channel.receive())
        await asyncio.sleep(0.01)
        assert not reader.done()
        event = SourceExpired(HandoffId("h"), RequestId("r"))
        channel.try_send(event)
        assert await reader == event
        reader = asyncio.ensure_future(channel.receive())
        await asyncio.sleep(0.01)
        channel.close()
        assert await reader is None

    run_virtual(main())


def test_request_intake_keeps_the_order_of_receipt_through_withdrawals() -> None:
    notified: list[int] = []
    intake = RequestIntake(notified.append)
    for n in range(4):
        intake.put(make_request(f"r{n}"), float(n))
    assert notified == [REQUEST] * 4
    assert intake.withdraw(RequestId("r0"))
    assert not intake.withdraw(RequestId("r0"))
    assert intake.withdraw(RequestId("r2"))
    assert intake.first_received_ms() == 1.0
    assert [intake.take().request_id for _ in range(2)] == ["r1", "r3"]
    assert intake.first_received_ms() is None
    with pytest.raises(KeyError):
        intake.take()
