"""Dataset and fixtures over HTTP."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from app.factory import create_app
from app.settings import ServeSettings
from app.state import AppState
from mocker_core.errors import ArgumentError
from tests.harness.asgi_stream import AsgiClient, Exchange
from tests.unit.app.serving_fixtures import chat, served

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
FIXTURES = """
- name: a call
  match: {user: {contains: weather}}
  answer:
    reasoning: Let me see.
    tool_calls: [{name: weather, arguments: {city: Oslo}}]
- name: its result
  match: {user: {contains: weather}, tool_result: {regex: "^rain"}}
  answer: Take an umbrella.
- match: {user: limit}
  answer: {error: {status: 429, message: "Slow down.", code: too_fast}, delays: {ttft_ms: 1}}
- match: {user: turns, headers: {X-Who: me}}
  answers: [one, two]
  repeat: cycle
- match: {user: filtered}
  answer: {text: "No.", finish_reason: content_filter}
- match: {user: plain, model: second}
  answer: Only for the second.
"""


@pytest.fixture
def fixtures(tmp_path: Path) -> Path:
    path = tmp_path / "fixtures.yaml"
    path.write_text(FIXTURES)
    return path


def ask(content_path: Path, *bodies: dict[str, Any], path: str = CHAT, **settings: Any) -> list[Exchange]:
    async def test(client: AsgiClient, state: AppState) -> list[Exchange]:
        return [await client.post(path, body, {"X-Who": "me"}) for body in bodies]

    settings.setdefault("content", "fixtures")
    return served(test, content_path=str(content_path), **settings)


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)
    os.utime(path, ns=(len(text), len(text)))


def content(exchange: Exchange) -> Any:
    return exchange.json()["choices"][0]["message"]["content"]


def test_a_fixture_calls_a_tool_that_nobody_offered_and_answers_its_result(fixtures: Path) -> None:
    first, streamed = ask(fixtures, chat("the weather"), chat("the weather", stream=True))
    message = first.json()["choices"][0]["message"]
    assert message["reasoning_content"] == "Let me see."
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}
    assert first.json()["choices"][0]["finish_reason"] == "tool_calls"
    assert streamed.records()[-2]["choices"][0]["finish_reason"] == "tool_calls"
    turns = [{"role": "user", "content": "the weather"}, message, {"role": "tool", "content": "rain"}]
    (second,) = ask(fixtures, {"messages": turns})
    assert content(second) == "Take an umbrella."


def test_a_fixture_error_has_its_status_code_and_header(fixtures: Path) -> None:
    (got,) = ask(fixtures, chat("limit", stream=True), wire_profile="openai")
    assert got.status == 429
    assert got.headers["retry-after"] == "1"
    assert got.json()["error"] == {
        "message": "Slow down.",
        "type": "invalid_request_error",
        "param": None,
        "code": "too_fast",
    }


def test_sequences_cycle_and_n_choices_count_as_one_request(fixtures: Path) -> None:
    got = ask(fixtures, chat("turns"), chat("turns", n=2), chat("turns"))
    assert [content(item) for item in got] == ["one", "two", "one"]
    assert got[1].json()["choices"][1]["message"]["content"] == "two"


def test_finish_reason_and_model_are_obeyed(fixtures: Path) -> None:
    names = ("first", "second")
    filtered, first, second = ask(
        fixtures,
        chat("filtered"),
        chat("plain", model="first"),
        chat("plain", model="second"),
        served_model_name=names,
    )
    assert filtered.json()["choices"][0]["finish_reason"] == "content_filter"
    assert content(second) == "Only for the second."
    assert content(first) not in (None, "", "Only for the second.")


def test_a_changed_file_is_read_anew_and_a_wrong_one_is_named(fixtures: Path) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        async def said() -> Any:
            state.extras["canned"]._looked_at_s = 0.0
            return content(await client.post(CHAT, chat("hi", max_tokens=50)))

        rewrite(fixtures, '- match: {user: hi}\n  answer: "first"\n')
        assert await said() == "first"
        rewrite(fixtures, '- match: {user: hi}\n  anwser: "second"\n')
        assert await said() == "first"
        figures = (await client.get("/admin/metrics")).json()["content"]
        assert "did you mean `answer`" in figures["last_error"]
        assert figures["found"] == 2

    served(test, content="fixtures", content_path=str(fixtures))


def test_a_dataset_answers_by_the_last_user_message_or_the_prompt(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl"
    path.write_text('{"prompt": "2+2?", "answer": "4"}\n')
    known, unknown = ask(path, chat("2+2?"), chat("3+3?", max_tokens=9), content="dataset")
    assert content(known) == "4"
    assert content(unknown)
    (long,) = ask(path, chat("2+2?", max_tokens=6, ignore_eos=True), content="dataset")
    assert content(long) == "4" * 6
    texts, ids = ask(
        path, {"prompt": ["2+2?", "?"], "max_tokens": 9}, {"prompt": [17]}, path=TEXT, content="dataset"
    )
    assert texts.json()["choices"][0]["text"] == "4"
    assert texts.json()["choices"][1]["text"] != "4"
    assert ids.status == 200


def test_delays_are_added_to_the_engines_times(fixtures: Path) -> None:
    fixtures.write_text('- match: {user: hi}\n  answer: {text: "a b c", delays: {ttft_ms: 40, itl_ms: 10}}\n')

    async def test(client: AsgiClient, state: AppState) -> None:
        ends: list[Any] = []

        class Watch:
            def on_request_start(self, run: Any) -> None: ...

            def on_request_end(self, run: Any) -> None:
                ends.append(run)

        state.observers.append(Watch())
        exchange = await client.post(CHAT, chat("hi", stream=True))
        assert exchange.text() == "a b c"
        (run,) = ends
        assert run.first_token_ms - run.arrival_ms >= 40
        assert run.last_token_ms - run.first_token_ms >= 10 * (run.generated - 1) - 0.01

    served(test, content="fixtures", content_path=str(fixtures))


def test_a_wrong_file_refuses_the_start(tmp_path: Path) -> None:
    for content_mode, word in (("fixtures", "fixture"), ("dataset", "dataset"), ("replay", "recordings")):
        missing = ServeSettings(content=content_mode, content_path=str(tmp_path / "none"))
        with pytest.raises(ArgumentError, match=word):
            create_app(missing)
