from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from app.content.fixtures import (
    FixtureAnswer,
    FixtureDelays,
    FixtureError,
    FixtureFault,
    FixtureRequest,
    FixtureStore,
)
from app.text.plan import ToolCallText

WEATHER = """
fixtures:
  - name: ask the tool
    match:
      user: {contains: weather}
    answer:
      text: Let me look.
      tool_calls:
        - name: get_weather
          arguments: {city: Paris, days: 2}
  - match:
      user: {contains: weather}
      tool_result: {regex: "(?i)sun"}
    answer: It is sunny.
  - match: {user: hello, model: special}
    answer: Special hello.
  - match:
      user: hello
      headers: {X-Test: {contains: slow}}
    answer:
      text: Slow hello.
      delays: {ttft_ms: 500, itl_ms: 20.5}
  - match: {user: hello}
    answers: [First., Second., Third.]
  - match: {user: cycle}
    answers: [One., Two.]
    repeat: cycle
  - match: {user: fail}
    answers:
      - error: {status: 503, message: Overloaded, type: overloaded, code: busy}
      - error: {status: 429}
      - {text: At last., reasoning: Hm., finish_reason: length}
  - match: {user: broken}
    answer: {tool_calls: [{name: f, arguments: "{not json"}]}
"""


def make_store(tmp_path: Path, text: str = WEATHER) -> FixtureStore:
    path = tmp_path / "fixtures.yaml"
    path.write_text(text, encoding="utf-8")
    return FixtureStore.load(path)


def ask(store: FixtureStore, user: str, model: str = "m", **fields: object) -> FixtureAnswer | None:
    return store.answer_for(FixtureRequest(model, user, **fields))  # type: ignore[arg-type]


def text(answer: FixtureAnswer | None) -> str | None:
    return None if answer is None else answer.text


def test_tool_call_then_the_answer_to_its_result(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    call = ask(store, "the weather?")
    assert call == FixtureAnswer(
        "Let me look.", tool_calls=(ToolCallText("get_weather", '{"city":"Paris","days":2}'),)
    )
    assert text(ask(store, "the weather?", tool_result="Sunny")) == "It is sunny."


def test_entry_without_tool_result_never_answers_one(tmp_path: Path) -> None:
    assert ask(make_store(tmp_path), "the weather?", tool_result="rain") is None


def test_first_match_wins_and_all_rules_must_hold(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert text(ask(store, "hello", model="special")) == "Special hello."
    slow = ask(store, "hello", headers={"x-test": "very slow"})
    assert slow == FixtureAnswer("Slow hello.", delays=FixtureDelays(500, 20.5))
    assert text(ask(store, "hello", headers={"x-test": "quick"})) == "First."
    assert ask(store, "Hello") is None
    assert ask(store, "unknown") is None


def test_sequence_goes_on_and_its_last_answer_repeats(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    assert [text(ask(store, "hello")) for _ in range(5)] == [
        "First.",
        "Second.",
        "Third.",
        "Third.",
        "Third.",
    ]
    assert [text(ask(store, "cycle")) for _ in range(5)] == ["One.", "Two.", "One.", "Two.", "One."]


def test_errors_carry_their_fields(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    first, second, third = (ask(store, "fail") for _ in range(3))
    assert first == FixtureAnswer(error=FixtureFault(503, "Overloaded", "overloaded", "busy"))
    assert second is not None and second.error == FixtureFault(
        429, "Fixture error 429.", "invalid_request_error"
    )
    assert third == FixtureAnswer("At last.", "Hm.", finish_reason="length")


def test_text_arguments_stay_as_they_are(tmp_path: Path) -> None:
    answer = ask(make_store(tmp_path), "broken")
    assert answer is not None and answer.tool_calls == (ToolCallText("f", "{not json"),)


def test_list_at_the_top_and_match_all(tmp_path: Path) -> None:
    store = make_store(tmp_path, "- answer: anything\n- match: {tool_result: true}\n  answer: done\n")
    assert text(ask(store, "x")) == "anything"
    assert text(ask(store, "x", tool_result="")) == "done"
    assert len(store) == 2


def touch(path: Path, content: str, age: int) -> None:
    path.write_text(content)
    os.utime(path, ns=(age, age))


def test_changed_file_is_taken_over_and_begins_anew(tmp_path: Path) -> None:
    store = make_store(tmp_path, "- answers: [a, b]\n")
    assert not store.reload_if_changed()
    assert text(ask(store, "x")) == "a"
    touch(store.path, "- answers: [c, d]\n", 1)
    assert store.reload_if_changed()
    assert [text(ask(store, "x")) for _ in range(2)] == ["c", "d"]


def test_wrong_file_keeps_the_last_good_one_and_says_why_once(tmp_path: Path) -> None:
    store = make_store(tmp_path, "- answers: [a, b]\n")
    ask(store, "x")
    touch(store.path, "- answer: x\n- anser: y\n", 1)
    assert not store.reload_if_changed()
    assert store.last_error is not None and "line 2 (fixture 2)" in store.last_error
    assert "did you mean `answer`" in store.last_error
    assert text(ask(store, "x")) == "b"
    store.last_error = None
    assert not store.reload_if_changed() and store.last_error is None
    touch(store.path, "- answer: z\n", 2)
    assert store.reload_if_changed() and store.last_error is None
    assert text(ask(store, "x")) == "z"


def test_file_that_went_away_keeps_the_last_good_one(tmp_path: Path) -> None:
    store = make_store(tmp_path, "- answer: a\n")
    store.path.unlink()
    assert not store.reload_if_changed()
    assert store.last_error is not None and "No such file" in store.last_error
    assert text(ask(store, "x")) == "a"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("- answer: [", "line 1: not valid YAML"),
        ("- answer: a\n  answer: b", "line 2: not valid YAML (the key 'answer' comes twice"),
        ("- 5: a", "is no text"),
        ("- &a {match: *a}", "not valid YAML"),
        ("hello", "must be a list of fixtures"),
        ("", "must be a list of fixtures"),
        ("fixture: []", "did you mean `fixtures`"),
        ("- hello", "line 1 (fixture 1): a fixture must be a mapping"),
        ("- answer: a\n- match: {}", "line 2 (fixture 2): give either `answer` or `answers`"),
        ("- {answer: a, answers: [b]}", "give either"),
        ("- answers: []", "at least one"),
        ("- answers: a", "at least one"),
        ("- answer: 42", "an answer must be a text (quote numbers)"),
        ("- answer: {reasoning: x}", "needs text, tool_calls or error"),
        ("- answer: {text: x, error: {status: 500}}", "not both"),
        ("- answer: {text: 5}", "`text` is 5; it must be a text"),
        ("- answer: {text: x, finish_reason: done}", "must be one of stop"),
        ("- answer: {error: {status: 200}}", "from 400 to 599"),
        ("- answer: {error: {status: true}}", "from 400 to 599"),
        ("- answer: {error: oops}", "`error` must be a mapping"),
        ("- answer: {tool_calls: {}}", "`tool_calls` must be a list"),
        ("- answer: {tool_calls: [{arguments: {}}]}", "needs a name"),
        ("- answer: {tool_calls: [{name: f, arguments: {d: 2020-01-01}}]}", "quote dates"),
        ("- answer: {text: x, delays: {ttft_ms: -1}}", "milliseconds from 0"),
        ("- answer: {text: x, delays: {ttft: 1}}", "did you mean `ttft_ms`"),
        ("- {answer: a, repeat: never}", "must be last or cycle"),
        ("- {answer: a, match: {user: 5}}", "`user` must be a text"),
        ("- {answer: a, match: {user: {regex: '('}}}", "regex '(' of `user` is not valid"),
        ("- {answer: a, match: {user: {like: x}}}", "unknown key `like`"),
        ("- {answer: a, match: {headers: [x]}}", "`headers` must be a mapping"),
        ("- {answer: a, match: {headers: {x: 1}}}", "`x` must be a text"),
    ],
)
def test_wrong_file_is_refused_with_file_and_place(tmp_path: Path, content: str, says: str) -> None:
    with pytest.raises(FixtureError, match=re.escape(says)) as caught:
        make_store(tmp_path, content)
    assert str(tmp_path) in str(caught.value)


def test_missing_or_binary_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FixtureError, match="cannot be read"):
        FixtureStore.load(tmp_path / "none.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xff")
    with pytest.raises(FixtureError, match="not UTF-8"):
        FixtureStore.load(tmp_path / "b.yaml")
