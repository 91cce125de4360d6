"""Faults by header and at rates: what the client sees, and that nothing is left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.errors import ApiError
from app.faults import NO_CHANGE, FaultRates, Faults
from app.state import AppState
from tests.harness.asgi_stream import AsgiClient, Exchange, serving
from tests.unit.app.serving_fixtures import chat, make_app, served

PATH = "/v1/chat/completions"
LONG: dict[str, Any] = {"max_tokens": 12, "ignore_eos": True, "seed": 1}


@pytest.mark.parametrize("status", [400, 429, 500, 503, 529])
def test_an_error_is_answered_as_asked(status: int) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        got = await client.post(PATH, chat(), {"X-Mocker-Error": str(status)})
        assert got.status == status
        assert got.json()["error"]["code"] == status
        assert ("retry-after" in got.headers) is (status in (429, 503))

    served(test)


@pytest.mark.parametrize(
    "header", ["X-Mocker-Error", "X-Mocker-TTFT-Ms", "X-Mocker-Stall-After", "X-Mocker-Disconnect-After"]
)
@pytest.mark.parametrize("value", ["", "x", "-1", "nan", "1e99"])
def test_a_wrong_fault_header_is_400(header: str, value: str) -> None:
    async def test(client: AsgiClient, state: AppState) -> int | None:
        return (await client.post(PATH, chat(max_tokens=1), {header: value})).status

    assert served(test) == 400


def test_headers_can_be_switched_off() -> None:
    async def test(client: AsgiClient, state: AppState) -> int | None:
        return (await client.post(PATH, chat(), {"X-Mocker-Error": "500"})).status

    assert served(test, fault_headers=False) == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_connection_is_cut_after_its_tokens(stream: bool) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        for tokens in (0, 1, 5, 11):
            body = chat(stream=stream, **LONG)
            got = await client.post(PATH, body, {"X-Mocker-Disconnect-After": str(tokens)})
            assert not got.complete
            if stream:
                assert sum(b'"content":' in line for line in got.body.split(b"\n\n")[1:]) == tokens
            else:
                assert got.body == b""

    served(test)


def test_a_stalled_stream_is_silent_until_its_client_leaves() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        exchange = client.open("POST", PATH, chat(stream=True, **LONG), {"X-Mocker-Stall-After": "3"})
        await records(exchange, 4)
        while state.engine.metrics(0).running_requests or len(state.dispatcher):
            await pause()
        assert len(exchange.records()) == 4
        assert not exchange.complete
        exchange.hang_up()
        await exchange.finished()

    served(test)


def test_a_stall_with_a_time_ends() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        headers = {"X-Mocker-Stall-After": "3", "X-Mocker-Stall-Ms": "5", "X-Mocker-ITL-Ms": "0.1"}
        plain = await client.post(PATH, chat(stream=True, **LONG))
        got = await client.post(PATH, chat(stream=True, **LONG), headers)
        assert got.text() == plain.text()
        assert got.records()[-1] == "[DONE]"

    served(test)


def test_a_stalled_stream_ends_with_an_error_when_the_server_stops() -> None:
    async def main() -> None:
        async with serving(make_app()) as client:
            exchange = client.open("POST", PATH, chat(stream=True, **LONG), {"X-Mocker-Stall-After": "3"})
            await records(exchange, 4)
        await exchange.finished()
        assert "error" in exchange.records()[-2]

    asyncio.run(main())


def test_rates_draw_as_often_as_they_say_and_alike_for_one_seed() -> None:
    def draws(seed: int) -> list[str]:
        faults = Faults(FaultRates(error=0.2, disconnect=0.3, stall=0.1), seed)
        found = []
        for _ in range(2000):
            try:
                faults.check({})
            except ApiError as error:
                assert error.status == 500
                found.append("error")
                continue
            pace = faults.pace({}, 10)
            found.append(
                "none" if pace == NO_CHANGE else "stall" if pace.stall_after is not None else "disconnect"
            )
        return found

    first = draws(1)
    assert first == draws(1) != draws(2)
    for kind, rate in (("error", 0.2), ("disconnect", 0.3), ("stall", 0.1), ("none", 0.4)):
        assert abs(first.count(kind) / 2000 - rate) < 0.05


@pytest.mark.parametrize(
    "values",
    [
        {"error": 2},
        {"error": "x"},
        {"error": True},
        {"err": 1},
        {"error": 0.6, "stall": 0.6},
        {"error_status": 200},
    ],
    ids=str,
)
def test_wrong_rates_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        FaultRates.from_mapping(values)
    assert caught.value.status == 400


async def records(exchange: Exchange, count: int) -> None:
    """Wait until so many records came."""
    async with asyncio.timeout(20):
        while exchange.body.count(b"\n\n") < count:
            await pause()


async def pause() -> None:
    await asyncio.sleep(0.001)
