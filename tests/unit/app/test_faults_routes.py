"""Faults and canned answers hold on every generating route, in its own shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.state import AppState
from tests.harness.asgi_stream import AsgiClient
from tests.unit.app.serving_fixtures import served

HI = [{"role": "user", "content": "hi"}]
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HI, "max_tokens": 12, "ignore_eos": True},
    "/v1/completions": {"prompt": "hi", "max_tokens": 12, "ignore_eos": True},
    "/v1/responses": {"input": "hi", "max_output_tokens": 16, "ignore_eos": True},
    "/v1/messages": {"messages": HI, "max_tokens": 12, "ignore_eos": True},
}


@pytest.mark.parametrize("path", ROUTES)
def test_an_error_has_the_routes_shape(path: str) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        got = await client.post(path, ROUTES[path], {"X-Mocker-Error": "529"})
        assert got.status == 529
        assert "asked for" in got.json()["error"]["message"]
        assert (got.json().get("type") == "error") is (path == "/v1/messages")

    served(test)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ROUTES)
def test_a_connection_is_cut_and_a_delayed_answer_is_whole(path: str, stream: bool) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        body = {**ROUTES[path], "stream": stream, "seed": 1}
        cut = await client.post(path, body, {"X-Mocker-Disconnect-After": "4"})
        assert not cut.complete
        late = await client.post(path, body, {"X-Mocker-TTFT-Ms": "3", "X-Mocker-ITL-Ms": "0.2"})
        assert late.complete
        assert late.status == 200

    served(test)


@pytest.mark.parametrize("path", ROUTES)
def test_a_fixture_answers(path: str, tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text("- match: {user: hi}\n  answer: Written before.\n")
    body = {name: value for name, value in ROUTES[path].items() if name != "ignore_eos"}

    async def test(client: AsgiClient, state: AppState) -> None:
        for stream in (False, True):
            got = await client.post(path, {**body, "stream": stream})
            assert got.status == 200
            if not stream:
                assert "Written before." in got.body.decode()

    served(test, content="fixtures", content_path=str(file))


@pytest.mark.parametrize("path", ROUTES)
def test_rate_limits_hold(path: str) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        first = await client.post(path, ROUTES[path])
        assert first.headers["x-ratelimit-remaining-requests"] == "0"
        second = await client.post(path, ROUTES[path])
        assert second.status == 429
        assert float(second.headers["retry-after-ms"]) > 0

    served(test, rate_limit_requests_per_minute=1)
