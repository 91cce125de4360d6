"""Background responses, late readers, cancels, failures and clients that leave; the engine is scripted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.openai.responses.store import response_store
from app.state import AppState
from mocker_core.events import OutputSignal
from tests.harness.asgi_stream import AsgiClient, Exchange
from tests.harness.scripted_engine import ScriptedEngine
from tests.unit.app.event_records import kinds, read_events
from tests.unit.app.serving_fixtures import scripted

PATH = "/v1/responses"
OPENING = ["response.created", "response.queued", "response.in_progress"]


def ask(**more: Any) -> dict[str, Any]:
    return {"input": "Hello", "seed": 3, "max_output_tokens": 6, "ignore_eos": True, **more}


async def submit(client: AsgiClient, engine: ScriptedEngine, **more: Any) -> Exchange:
    before = len(engine.submitted)
    opened = client.open("POST", PATH, ask(**more))
    async with asyncio.timeout(20):
        await engine.wait_submitted(before + 1)
    return opened


def emit(engine: ScriptedEngine, start: int, stop: int) -> None:
    """Tokens [start, stop) of the newest request."""
    for position in range(start, stop):
        engine.emit(engine.next_token(engine.submitted[-1], position))


async def status_of(client: AsgiClient, response_id: str) -> str:
    status: str = (await client.get(f"{PATH}/{response_id}")).json()["status"]
    return status


async def start_background(client: AsgiClient, engine: ScriptedEngine, **more: Any) -> str:
    made = (await (await submit(client, engine, background=True, **more)).finished()).json()
    assert made["status"] == "queued"
    assert made["output"] == []
    ident: str = made["id"]
    return ident


def test_a_background_response_goes_from_queued_to_completed() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        ident = await start_background(client, engine)
        assert await status_of(client, ident) == "queued"
        engine.admit(engine.submitted[0].request_id)
        assert await status_of(client, ident) == "in_progress"
        refused = await client.post(PATH, ask(previous_response_id=ident))
        assert refused.status == 400
        emit(engine, 0, 6)
        body = (await client.get(f"{PATH}/{ident}")).json()
        assert body["status"] == "incomplete"
        assert body["usage"]["output_tokens"] == 6
        assert body["output"][0]["content"][0]["text"]

    scripted(test)


def test_readers_that_come_at_any_time_see_the_same_events() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        first = await submit(client, engine, background=True, stream=True)
        await first.wait_for_bodies(1)
        assert kinds(read_events(first.body)) == OPENING[:2]
        ident = read_events(first.body)[0]["response"]["id"]
        follow = f"{PATH}/{ident}?stream=true"
        readers = [client.open("GET", follow)]
        await readers[0].wait_for_bodies(1)
        engine.admit(engine.submitted[0].request_id)
        emit(engine, 0, 3)
        readers.append(client.open("GET", follow))
        await readers[1].wait_for_bodies(1)
        emit(engine, 3, 6)
        readers.append(client.open("GET", follow))
        whole = (await first.finished()).body
        for reader in readers:
            assert (await reader.finished()).body == whole
        events = read_events(whole)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert kinds(events)[:3] == OPENING
        assert events[-1]["response"] == (await client.get(f"{PATH}/{ident}")).json()
        for after in (0, 4, len(events) - 2, len(events) + 5):
            rest = read_events((await client.get(f"{follow}&starting_after={after}")).body)
            assert rest == events[after + 1 :]

    scripted(test)


def test_a_reader_that_leaves_ends_nothing() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        first = await submit(client, engine, background=True, stream=True)
        await first.wait_for_bodies(1)
        ident = read_events(first.body)[0]["response"]["id"]
        emit(engine, 0, 2)
        first.hang_up()
        await first.finished()
        assert engine.cancelled == []
        emit(engine, 2, 6)
        assert await status_of(client, ident) == "incomplete"

    scripted(test)


def test_cancel_ends_the_request_and_its_streams() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        first = await submit(client, engine, background=True, stream=True)
        await first.wait_for_bodies(1)
        ident = read_events(first.body)[0]["response"]["id"]
        emit(engine, 0, 2)
        got = await client.post(f"{PATH}/{ident}/cancel", b"")
        assert got.json()["status"] == "cancelled"
        assert engine.cancelled == [engine.submitted[0].request_id]
        events = read_events((await first.finished()).body)
        assert events[-1]["type"] == "response.output_text.delta"
        replayed = await client.get(f"{PATH}/{ident}?stream=true")
        assert replayed.status == 200
        again = await client.post(f"{PATH}/{ident}/cancel", b"")
        assert again.json() == got.json()
        assert len(engine.cancelled) == 1

    scripted(test)


def test_deleting_a_running_response_cancels_it() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        ident = await start_background(client, engine)
        assert (await client.request("DELETE", f"{PATH}/{ident}")).status == 200
        assert engine.cancelled == [engine.submitted[0].request_id]
        assert (await client.get(f"{PATH}/{ident}")).status == 404

    scripted(test)


def test_only_background_responses_can_be_cancelled_or_followed() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        opened = await submit(client, engine)
        emit(engine, 0, 6)
        ident = (await opened.finished()).json()["id"]
        assert (await client.post(f"{PATH}/{ident}/cancel", b"")).status == 400
        assert (await client.get(f"{PATH}/{ident}?stream=true")).status == 400
        assert (await client.get(f"{PATH}/{ident}?starting_after=1")).status == 400
        assert (await client.get(f"{PATH}/{ident}?stream=true&starting_after=-1")).status == 400

    scripted(test)


@pytest.mark.parametrize("tokens", [0, 2])
def test_a_failure_in_the_background_is_told_to_all(tokens: int) -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        first = await submit(client, engine, background=True, stream=True)
        await first.wait_for_bodies(1)
        ident = read_events(first.body)[0]["response"]["id"]
        emit(engine, 0, tokens)
        engine.dispatcher.on_dead(0, [engine.submitted[0].request_id], "it broke")
        events = read_events((await first.finished()).body)
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
        assert events[-1]["response"]["error"]["code"] == "server_error"
        assert "it broke" in events[-2]["message"]
        assert await status_of(client, ident) == "failed"
        assert read_events((await client.get(f"{PATH}/{ident}?stream=true")).body) == events

    scripted(test)


def test_a_rejected_background_request_fails_with_invalid_prompt() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        ident = await start_background(client, engine)
        engine.emit(OutputSignal(engine.submitted[0].request_id, None, True, rejected=True))
        body = (await client.get(f"{PATH}/{ident}")).json()
        assert body["status"] == "failed"
        assert body["error"]["code"] == "invalid_prompt"

    scripted(test)


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_before_the_first_token_has_its_true_status(stream: bool) -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        opened = await submit(client, engine, stream=stream)
        engine.dispatcher.on_dead(0, [engine.submitted[0].request_id], "it broke")
        got = await opened.finished()
        assert got.status == 503
        assert "it broke" in got.json()["error"]["message"]
        assert len(response_store(state)) == 0

    scripted(test)


def test_a_failure_after_the_first_token_ends_the_stream_as_failed() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        opened = await submit(client, engine, stream=True)
        emit(engine, 0, 2)
        engine.dispatcher.on_dead(0, [engine.submitted[0].request_id], "it broke")
        got = await opened.finished()
        assert got.status == 200
        events = read_events(got.body)
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]

    scripted(test)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_request(stream: bool) -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        opened = await submit(client, engine, stream=stream)
        emit(engine, 0, 2)
        opened.hang_up()
        await opened.finished()
        assert engine.cancelled == [engine.submitted[0].request_id]
        assert len(response_store(state)) == 0

    scripted(test)


def test_nothing_is_sent_before_the_first_token() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        opened = await submit(client, engine, stream=True)
        engine.admit(engine.submitted[0].request_id)
        engine.dispatcher.flush()
        assert opened.status is None
        for position in range(6):
            emit(engine, position, position + 1)
            assert len(opened.bodies) == position + 1
        await opened.finished()

    scripted(test)


def test_a_full_queue_refuses_a_background_response() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        first = await start_background(client, engine)
        second = await start_background(client, engine)
        refused = await client.post(PATH, ask(background=True, stream=True))
        assert refused.status == 429
        assert refused.headers["retry-after"] == "1"
        assert len(response_store(state)) == 2
        for ident in (first, second):
            await client.post(f"{PATH}/{ident}/cancel", b"")

    scripted(test, max_num_seqs=1, max_waiting=1)
