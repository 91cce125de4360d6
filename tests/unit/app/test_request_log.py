from __future__ import annotations

import logging
from typing import Any, cast

import orjson
import pytest

from app.log_json import JsonFormatter
from app.openai.choice import ChoiceRun
from app.request_log import LINES_PER_S, RequestLog
from app.state import AppState
from mocker_core.request import RequestId
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


def test_json_lines_have_the_facts_as_fields(caplog: pytest.LogCaptureFixture) -> None:
    logged(caplog)
    (record,) = (record for record in caplog.records if record.name == "mocker.requests")
    line = orjson.loads(JsonFormatter().format(record))
    assert (line["request_id"], line["outcome"], line["output_tokens"]) == ("chatcmpl-r1", "length", 3)
    assert line["e2e_ms"] >= line["ttft_ms"] >= line["queue_ms"] >= 0
    assert "prompt" not in line


def test_under_load_most_requests_are_only_counted(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 5.0
    log = RequestLog(clock_s=lambda: now_s)
    run = ChoiceRun(cast(Any, None), RequestId("r"), 0, None, 3)
    with caplog.at_level(logging.INFO, logger="mocker.requests"):
        for _ in range(LINES_PER_S + 30):
            log.on_request_end(run)
        assert len(caplog.records) == LINES_PER_S
        now_s = 6.0
        log.on_request_end(run)
    assert caplog.messages[LINES_PER_S].startswith("30 further requests ended")
    assert len(caplog.records) == LINES_PER_S + 2
