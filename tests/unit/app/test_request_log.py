from __future__ import annotations

import logging

import pytest

from app.state import AppState
from tests.harness.asgi_stream import AsgiClient
from tests.unit.app.serving_fixtures import chat, served

CHAT = "/v1/chat/completions"


def logged(caplog: pytest.LogCaptureFixture, **settings: bool) -> list[str]:
    async def test(client: AsgiClient, state: AppState) -> None:
        await client.post(CHAT, chat("my secret", max_tokens=3, ignore_eos=True), {"X-Request-Id": "r1"})

    with caplog.at_level(logging.INFO, logger="mocker.requests"):
        served(test, **settings)
    return [record.getMessage() for record in caplog.records if record.name == "mocker.requests"]


def test_a_request_is_one_line_without_its_prompt(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = logged(caplog)
    assert line.startswith("chatcmpl-r1 length: prompt ")
    assert "output 3 tokens" in line
    assert "my secret" not in line


def test_prompts_are_logged_only_when_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = logged(caplog, log_prompts=True)
    assert "my secret" in line


def test_the_log_can_be_off(caplog: pytest.LogCaptureFixture) -> None:
    assert logged(caplog, enable_log_requests=False) == []
