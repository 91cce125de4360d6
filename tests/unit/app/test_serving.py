"""What the shared way of a request does when the engine or the client misbehaves; the engine is scripted."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from app.factory import create_app
from app.openai.choice import ChoiceRun, Outcome
from app.openai.submit import DirectSubmitter
from app.settings import ServeSettings
from app.state import AppState
from mocker_core.errors import DuplicateIdError
from mocker_core.events import OutputSignal
from mocker_core.request import DirectRequest, RequestId
from tests.harness.asgi_stream import AsgiClient, Exchange, serving
from tests.harness.scripted_engine import ScriptedEngine, State
from tests.unit.app.serving_fixtures import chat, scripted, served

PATH = "/v1/chat/completions"


async def submitted(engine: ScriptedEngine, count: int) -> None:
    async with asyncio.timeout(20):
        await engine.wait_submitted(count)


def finish(engine: ScriptedEngine) -> None:
    """Every submitted request gets all its tokens."""
    for request in engine.submitted:
        for position in range(len(request.output_token_ids or ())):
            engine.emit(engine.next_token(request, position))


def test_a_rejected_request_is_a_400_even_when_it_streams() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        opened = client.open("POST", PATH, chat(max_tokens=5, stream=True))
        await submitted(engine, 1)
        engine.emit(OutputSignal(engine.submitted[0].request_id, None, True, rejected=True))
        got = await opened.finished()
        assert got.status == 400
        assert "can never fit" in got.json()["error"]["message"]

    scripted(test)


@pytest.mark.parametrize("stream", [False, True])
def test_a_failure_before_the_first_token_has_its_true_status(stream: bool) -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        opened = client.open("POST", PATH, chat(max_tokens=5, stream=stream))
        await submitted(engine, 1)
        engine.dispatcher.on_dead(0, [engine.submitted[0].request_id], "it broke")
        got = await opened.finished()
        assert got.status == 503
        assert "it broke" in got.json()["error"]["message"]

    scripted(test)


def test_a_failure_after_the_first_token_is_a_record_and_done() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        opened = client.open("POST", PATH, chat(max_tokens=5, stream=True))
        await submitted(engine, 1)
        engine.emit(engine.next_token(engine.submitted[0], 0))
        engine.dispatcher.on_dead(0, [engine.submitted[0].request_id], "it broke")
        got = await opened.finished()
        assert got.status == 200
        assert got.records()[-2]["error"]["code"] == 503
        assert got.records()[-1] == "[DONE]"

    scripted(test)


def test_a_failed_choice_cancels_its_siblings() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        opened = client.open("POST", PATH, chat(max_tokens=5, n=3))
        await submitted(engine, 3)
        ids = [request.request_id for request in engine.submitted]
        engine.dispatcher.on_dead(0, [ids[1]], "one rank died")
        assert (await opened.finished()).status == 503
        assert sorted(engine.cancelled) == sorted([ids[0], ids[2]])

    scripted(test)


def test_a_refusal_of_a_later_choice_cancels_the_earlier_ones() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        engine.refuse_after = 2
        got = await client.post(PATH, chat(max_tokens=5, n=3))
        assert got.status == 409
        assert len(engine.submitted) == 2
        assert {request.request_id for request in engine.submitted} == set(engine.cancelled)

    scripted(test)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tokens_before", [0, 2])
def test_a_client_that_leaves_cancels_its_request_at_once(stream: bool, tokens_before: int) -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        opened = client.open("POST", PATH, chat(max_tokens=5, stream=stream))
        await submitted(engine, 1)
        for position in range(tokens_before):
            engine.emit(engine.next_token(engine.submitted[0], position))
        opened.hang_up()
        await opened.finished()
        assert engine.cancelled == [engine.submitted[0].request_id]
        assert engine.emit(engine.next_token(engine.submitted[0], 3)) == [engine.submitted[0].request_id]

    scripted(test)


def test_a_reader_that_pauses_loses_no_token() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        opened = client.open("POST", PATH, chat(max_tokens=30, ignore_eos=True, stream=True, seed=1))
        await submitted(engine, 1)
        engine.emit(engine.next_token(engine.submitted[0], 0))
        opened.pause()
        for position in range(1, 30):
            engine.emit(engine.next_token(engine.submitted[0], position))
        assert not opened.complete
        opened.resume()
        got = await opened.finished()
        assert (
            len([record for record in got.records()[:-1] if record["choices"][0]["delta"]["content"]]) == 30
        )

    scripted(test)


def test_tokens_of_one_flush_go_out_in_one_send_as_records_of_their_own() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        opened = client.open("POST", PATH, chat(max_tokens=6, ignore_eos=True, stream=True))
        await submitted(engine, 1)
        for position in range(4):
            engine.emit(engine.next_token(engine.submitted[0], position), flush=False)
        assert opened.bodies == []
        engine.dispatcher.flush()
        assert len(opened.bodies) == 1
        assert len(opened.records()) == 5
        for position in (4, 5):
            engine.emit(engine.next_token(engine.submitted[0], position))
        assert len((await opened.finished()).bodies) == 3

    scripted(test)


def test_cached_tokens_are_those_of_the_first_admission() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        opened = client.open("POST", PATH, chat(max_tokens=2))
        await submitted(engine, 1)
        ident = engine.submitted[0].request_id
        engine.admit(ident, reused=4)
        engine.admit(ident, reused=64)
        finish(engine)
        got = (await opened.finished()).json()
        assert got["usage"]["prompt_tokens_details"]["cached_tokens"] == 4

    scripted(test)


def test_priority_reaches_the_engine_lowest_number_first() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        opened = client.open("POST", PATH, chat(max_tokens=1, priority=-3))
        await submitted(engine, 1)
        assert engine.submitted[0].priority == 3
        finish(engine)
        await opened.finished()

    scripted(test)


@pytest.mark.parametrize(
    ("state_name", "path", "status"), [("STARTING", "/health", 503), ("DEAD", "/ping", 503)]
)
def test_health_is_503_unless_requests_are_served(state_name: str, path: str, status: int) -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        assert (await client.get(path)).status == 200
        assert (await client.get(path)).body == b""
        engine.state = State[state_name]
        engine.dead_reason = "it broke"
        assert (await client.get(path)).status == status
        refused = await client.post(PATH, chat())
        assert refused.status == status
        assert refused.json()["error"]["code"] == status
        engine.state = State.READY

    scripted(test)


def test_requests_beyond_max_waiting_get_429() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        opened = [client.open("POST", PATH, chat(max_tokens=1)) for _ in range(2 + 3)]
        await submitted(engine, 5)
        refused = await client.post(PATH, chat(max_tokens=1))
        assert refused.status == 429
        assert refused.headers["retry-after"] == "1"
        engine.admit(*(request.request_id for request in engine.submitted[:2]))
        engine.running, engine.waiting = 2, 3
        assert (await client.post(PATH, chat(max_tokens=1))).status == 429
        engine.admit(engine.submitted[2].request_id)
        opened.append(client.open("POST", PATH, chat(max_tokens=1)))
        await submitted(engine, 6)
        finish(engine)
        for exchange in opened:
            assert (await exchange.finished()).status == 200

    scripted(test, max_num_seqs=2, max_waiting=3)


def test_observers_hear_of_start_and_end_once() -> None:
    heard: list[Any] = []

    class Watching:
        def on_request_start(self, run: ChoiceRun) -> None:
            heard.append(("start", run.request_id))

        def on_request_end(self, run: ChoiceRun) -> None:
            heard.append((run.outcome, run.generated, run.finish_reason))

    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        state.observers.append(Watching())
        opened = client.open("POST", PATH, chat(max_tokens=2, ignore_eos=True), {"X-Request-Id": "a"})
        await submitted(engine, 1)
        finish(engine)
        await opened.finished()
        left = client.open("POST", PATH, chat(max_tokens=2), {"X-Request-Id": "b"})
        await submitted(engine, 2)
        left.hang_up()
        await left.finished()

    scripted(test)
    assert heard == [
        ("start", "chatcmpl-a"),
        (Outcome.COMPLETED, 2, "length"),
        ("start", "chatcmpl-b"),
        (Outcome.CANCELLED, 0, None),
    ]


def test_a_submitter_may_give_transfer_parameters_to_a_whole_answer() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        seen: list[Any] = []
        direct = DirectSubmitter(engine)

        class Handoff:
            def submit(self, request: Any, run: ChoiceRun, context: Any) -> None:
                seen.append(context.kv_transfer_params)
                run.kv_transfer_params = {"remote_engine_id": "e"}
                direct.submit(request, run, context)

            def cancel(self, run: ChoiceRun) -> None:
                direct.cancel(run)

        state.submitter = Handoff()
        opened = client.open("POST", PATH, chat(max_tokens=1, kv_transfer_params={"do_remote_decode": True}))
        await submitted(engine, 1)
        engine.emit(OutputSignal(engine.submitted[0].request_id, None, True, hidden=True))
        got = (await opened.finished()).json()
        assert seen == [{"do_remote_decode": True}]
        assert got["kv_transfer_params"] == {"remote_engine_id": "e"}
        assert got["usage"]["completion_tokens"] == 1
        assert got["choices"][0]["finish_reason"] == "length"

    scripted(test)


def test_the_end_of_the_server_ends_open_streams() -> None:
    async def main() -> Exchange:
        engine = ScriptedEngine()
        app = create_app(ServeSettings(), engine=engine.bind)  # type: ignore[arg-type]
        async with serving(app) as client:
            opened = client.open("POST", PATH, chat(max_tokens=5, stream=True))
            await submitted(engine, 1)
            engine.emit(engine.next_token(engine.submitted[0], 0))
        return await opened.finished()

    got = asyncio.run(main())
    assert "stopped" in got.records()[-2]["error"]["message"]
    assert got.complete


def test_an_internal_error_tells_nothing_of_the_inside(caplog: pytest.LogCaptureFixture) -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        def broken(*_: Any) -> int:
            raise ZeroDivisionError("secret")

        engine.submit = broken  # type: ignore[method-assign, assignment]
        with caplog.at_level(logging.CRITICAL):
            got = await client.post(PATH, chat())
        assert got.status == 500
        assert "secret" not in got.body.decode()
        assert got.json()["error"]["type"] == "InternalServerError"

    scripted(test)


def test_the_rank_header_chooses_the_rank() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        got = await client.post(PATH, chat(), {"X-Data-Parallel-Rank": "2"})
        assert got.status == 400
        opened = client.open("POST", PATH, chat(max_tokens=1), {"X-Data-Parallel-Rank": "1"})
        await submitted(engine, 1)
        run = state.dispatcher.find(RequestId(engine.submitted[0].request_id))
        assert isinstance(run, ChoiceRun)
        assert run.dp_rank == 1
        finish(engine)
        await opened.finished()

    scripted(test, data_parallel_size=2)


def test_an_id_that_the_engine_still_holds_is_replaced() -> None:
    async def test(client: AsgiClient, engine: ScriptedEngine, state: AppState) -> None:
        held: list[str] = ["chatcmpl-a"]
        submit = engine.submit

        def picky(request: DirectRequest, dp_rank: int | None = None) -> int:
            if request.request_id in held:
                raise DuplicateIdError("That id is taken.")
            return submit(request, dp_rank)

        engine.submit = picky  # type: ignore[method-assign]
        opened = client.open("POST", PATH, chat(max_tokens=1), {"X-Request-Id": "a"})
        await submitted(engine, 1)
        assert engine.submitted[0].request_id.startswith("chatcmpl-a-")
        finish(engine)
        got = await opened.finished()
        assert got.status == 200
        assert got.json()["id"] == "chatcmpl-a"

    scripted(test)


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings"])
def test_a_prompt_that_no_pass_can_hold_is_refused_instead_of_waiting_for_ever(path: str) -> None:
    name = "prompt" if path == "/v1/completions" else "input"

    async def test(client: AsgiClient, state: AppState) -> None:
        fits = await client.post(path, {name: list(range(8))})
        assert fits.status == 200, fits.body
        refused = await client.post(path, {name: list(range(9))})
        assert refused.status == 400
        assert "without chunked prefill at most 8 fit" in refused.json()["error"]["message"]

    served(test, max_num_batched_tokens=8, enable_chunked_prefill=False)
