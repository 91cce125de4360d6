"""Reads a fixture file: YAML to entries, each fault said with its file and line.

The file is a list of entries, or a mapping whose `fixtures` is one. An entry:

    name: weather, second turn      # optional
    match: {model, user, tool_result, headers: {name: ..}}  # each a text (exact) or {exact, contains, regex}
    answer: text, or {text, reasoning, tool_calls, error, delays, finish_reason}
    answers: a list of these, one for each request in turn  # instead of `answer`
    repeat: last | cycle            # at the end of `answers`
"""

from __future__ import annotations

import json
import re
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from app.content.fixture import (
    NO_DELAYS,
    FixtureAnswer,
    FixtureDelays,
    FixtureEntry,
    FixtureError,
    FixtureFault,
    TextMatch,
)
from app.text.plan import ToolCallText

_FINISH_REASONS = ("stop", "length", "tool_calls", "content_filter")


def read_fixtures(path: Path) -> tuple[FixtureEntry, ...]:
    """All entries, in order. Raises FixtureError."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise FixtureError(f"The fixture file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise FixtureError(f"The fixture file {path} is not UTF-8 text.") from None
    try:
        document = yaml.load(text, _Loader)  # a SafeLoader: it builds plain values only
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise FixtureError(f"{path}, line {line}: not valid YAML ({error.problem}).") from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise FixtureError(f"{path}: not valid YAML ({error}).") from None
    return _Reader(path).entries(document)


class _Map(dict[str, Any]):
    """A mapping that knows its line."""

    line = 1


class _Loader(yaml.SafeLoader):
    """Keeps lines, refuses a key that comes twice."""


def _construct_map(loader: _Loader, node: yaml.MappingNode) -> _Map:
    found = _Map()
    found.line = node.start_mark.line + 1
    loader.flatten_mapping(node)
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, str):
            raise yaml.MarkedYAMLError(
                problem=f"the key {key!r} is no text", problem_mark=key_node.start_mark
            )
        if key in found:
            raise yaml.MarkedYAMLError(
                problem=f"the key {key!r} comes twice", problem_mark=key_node.start_mark
            )
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Loader.add_constructor("tag:yaml.org,2002:map", _construct_map)


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._line = 1
        self._entry = ""

    def fault(self, why: str) -> FixtureError:
        return FixtureError(f"{self._path}, line {self._line}{self._entry}: {why}")

    def entries(self, document: Any) -> tuple[FixtureEntry, ...]:
        if isinstance(document, _Map):
            self.known(document, ("fixtures", "version"))
            document = document.get("fixtures")
        if not isinstance(document, list):
            raise self.fault(
                "the file must be a list of fixtures, or a mapping with a list under `fixtures`."
            )
        found = []
        for number, item in enumerate(document, 1):
            self._entry = f" (fixture {number})"
            found.append(self.entry(item))
        return tuple(found)

    def entry(self, item: Any) -> FixtureEntry:
        item = self.map(item, "a fixture")
        self.known(item, ("name", "match", "answer", "answers", "repeat"))
        name = item.get("name", "")
        if ("answer" in item) == ("answers" in item):
            raise self.fault("give either `answer` or `answers`.")
        answers = item.get("answers", [item.get("answer")])
        if not isinstance(answers, list) or not answers:
            raise self.fault("`answers` must be a list of at least one answer.")
        if item.get("repeat", "last") not in ("last", "cycle"):
            raise self.fault(f"`repeat` is {item['repeat']!r}; it must be last or cycle.")
        read = tuple(self.answer(answer) for answer in answers)
        match = self.map(item.get("match") or _Map(), "`match`")
        self.known(match, ("model", "user", "tool_result", "headers"))
        headers = self.map(match.get("headers") or _Map(), "`headers`")
        return FixtureEntry(
            answers=read,
            cycle=item.get("repeat") == "cycle",
            model=self.text_match(match, "model"),
            user=self.text_match(match, "user"),
            tool_result=self.text_match(match, "tool_result"),
            headers=tuple(
                (key.lower(), found)
                for key in headers
                if (found := self.text_match(headers, key)) is not None
            ),
            name=str(name),
        )

    def text_match(self, match: _Map, key: str) -> TextMatch | None:
        value = match.get(key)
        if value is None:
            return None
        if value is True:
            return TextMatch()  # any text, as long as there is one
        if isinstance(value, str):
            return TextMatch(exact=value)
        rules = self.map(
            value, f"`{key}`", "a text (quote numbers), true (any), or a mapping of exact, contains, regex"
        )
        self.known(rules, ("exact", "contains", "regex"))
        exact, contains, regex = (self.text(rules, name) for name in ("exact", "contains", "regex"))
        try:
            return TextMatch(exact, contains, None if regex is None else re.compile(regex))
        except re.error as error:
            raise self.fault(f"the regex {regex!r} of `{key}` is not valid: {error}.") from None

    def answer(self, value: Any) -> FixtureAnswer:
        if isinstance(value, str):
            return FixtureAnswer(text=value)
        item = self.map(value, "an answer", "a text (quote numbers) or a mapping")
        self.known(item, ("text", "reasoning", "tool_calls", "error", "delays", "finish_reason"))
        if not item.keys() & {"text", "tool_calls", "error"}:
            raise self.fault("an answer needs text, tool_calls or error.")
        if "error" in item and item.keys() & {"text", "tool_calls", "reasoning", "finish_reason"}:
            raise self.fault("an answer is either an error or text and tool_calls, not both.")
        calls = item.get("tool_calls", [])
        if not isinstance(calls, list):
            raise self.fault("`tool_calls` must be a list.")
        finish = self.text(item, "finish_reason")
        if finish is not None and finish not in _FINISH_REASONS:
            raise self.fault(
                f"`finish_reason` is {finish!r}; it must be one of {', '.join(_FINISH_REASONS)}."
            )
        return FixtureAnswer(
            text=self.text(item, "text"),
            reasoning=self.text(item, "reasoning"),
            tool_calls=tuple(self.tool_call(call) for call in calls),
            error=self.error(item["error"]) if "error" in item else None,
            delays=self.delays(item["delays"]) if "delays" in item else NO_DELAYS,
            finish_reason=finish,
        )

    def tool_call(self, value: Any) -> ToolCallText:
        item = self.map(value, "a tool call")
        self.known(item, ("name", "arguments"))
        name, arguments = self.text(item, "name"), item.get("arguments", {})
        if not name:
            raise self.fault("a tool call needs a name.")
        if isinstance(arguments, str):
            return ToolCallText(name, arguments)  # as it stands, so that broken JSON can be tried too
        try:
            return ToolCallText(name, json.dumps(arguments, ensure_ascii=False, separators=(",", ":")))
        except TypeError:
            raise self.fault("`arguments` holds a value that JSON does not have; quote dates.") from None

    def error(self, value: Any) -> FixtureFault:
        item = self.map(value, "`error`")
        self.known(item, ("status", "message", "type", "code", "param"))
        status, message = item.get("status"), self.text(item, "message")
        if not isinstance(status, int) or isinstance(status, bool) or not 400 <= status <= 599:
            raise self.fault(f"`status` of an error is {status!r}; it must be a number from 400 to 599.")
        usual = "server_error" if status >= 500 else "invalid_request_error"
        return FixtureFault(
            status=status,
            message=message or f"Fixture error {status}.",
            type=self.text(item, "type") or usual,
            code=self.text(item, "code"),
            param=self.text(item, "param"),
        )

    def delays(self, value: Any) -> FixtureDelays:
        item = self.map(value, "`delays`")
        self.known(item, ("ttft_ms", "itl_ms"))
        for key, number in item.items():
            is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
            if not is_number or not 0 <= number <= 86_400_000:
                raise self.fault(
                    f"`{key}` is {number!r}; it must be milliseconds from 0 to a day (86400000)."
                )
        return FixtureDelays(float(item.get("ttft_ms", 0)), float(item.get("itl_ms", 0)))

    def map(self, value: Any, what: str, instead: str = "a mapping") -> _Map:
        if not isinstance(value, _Map):
            raise self.fault(f"{what} must be {instead}, not {value!r:.60}.")
        self._line = value.line
        return value

    def known(self, item: _Map, keys: tuple[str, ...]) -> None:
        for key in item:
            if key not in keys:
                close = get_close_matches(key, keys, 1)
                hint = f"did you mean `{close[0]}`" if close else f"known are {', '.join(keys)}"
                raise self.fault(f"unknown key `{key}`; {hint}.")

    def text(self, item: _Map, key: str) -> str | None:
        value = item.get(key)
        if value is not None and not isinstance(value, str):
            raise self.fault(f"`{key}` is {value!r:.60}; it must be a text (quote it).")
        return value
