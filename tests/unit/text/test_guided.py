from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import validate

from app.text.guided import generate_choice, generate_json_object, generate_matching, structured_text
from app.text.json_schema import SchemaError
from app.text.tool_calls import call_id, plan_calls

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"location": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
            "required": ["location", "unit"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "get_time"}}
FLAT = {"type": "function", "name": "flat", "parameters": SCHEMA}


@given(
    st.integers(0, 2**64), st.sampled_from([r"\d{3}", "(yes|no)", r"[a-z]+@[a-z]+\.com\n?", "a*b+", "x|y|"])
)
def test_whole_text_matches_the_regex(seed: int, pattern: str) -> None:
    assert re.fullmatch(pattern, generate_matching(pattern, seed))


@given(st.integers(0, 2**64))
def test_choice_is_one_of_those_given(seed: int) -> None:
    assert generate_choice(["a", "b", "ü"], seed) in ("a", "b", "ü")


def test_every_choice_comes_up() -> None:
    assert {generate_choice(["a", "b", "c"], seed) for seed in range(50)} == {"a", "b", "c"}


def test_json_object_is_an_object() -> None:
    assert isinstance(json.loads(generate_json_object(4)), dict)


def test_each_kind_of_constraint_is_kept() -> None:
    assert structured_text({"choice": ["only"]}, 1) == "only"
    assert re.fullmatch("[0-9]{4}", structured_text({"regex": "[0-9]{4}", "json": None}, 1))
    assert isinstance(json.loads(structured_text({"json_object": True}, 1)), dict)
    for schema in (SCHEMA, json.dumps(SCHEMA)):
        validate(json.loads(structured_text({"json": schema}, 1)), SCHEMA)


@pytest.mark.parametrize(
    ("constraint", "says"),
    [
        ({}, "Exactly one"),
        ({"json": SCHEMA, "regex": "a"}, "json, regex"),
        ({"grammar": "root ::= x"}, "grammar are not simulated"),
        ({"structural_tag": "{}"}, "structural_tag are not simulated"),
        ({"choice": []}, "at least one"),
        ({"choice": [1]}, "list of at least one string"),
        ({"regex": "("}, "not a supported regular expression"),
        ({"regex": 5}, "must be a string"),
        ({"regex": "(?=a)b"}, "No text could be made"),
        ({"json": "{"}, "not valid JSON"),
        ({"json": {"type": "nope"}}, "not valid at type"),
    ],
)
def test_wrong_constraint_is_refused_in_one_sentence(constraint: dict[str, Any], says: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(says)):
        structured_text(constraint, 1)


@given(st.integers(0, 2**64))
def test_required_choice_calls_with_valid_arguments(seed: int) -> None:
    for call in plan_calls([WEATHER, CLOCK], "required", seed):
        schema = WEATHER["function"]["parameters"] if call.name == "get_weather" else {"type": "object"}  # type: ignore[index]
        validate(json.loads(call.arguments), schema)


def test_choices_of_the_wire_are_honoured() -> None:
    tools = [WEATHER, CLOCK]
    named = {"type": "function", "function": {"name": "get_time"}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [CLOCK]}}
    assert plan_calls(tools, "none", 1) == []
    assert [call.name for call in plan_calls(tools, named, 1)] == ["get_time"]
    assert {call.name for seed in range(20) for call in plan_calls(tools, allowed, seed)} == {"get_time"}
    assert len(plan_calls(tools, None, 1)) >= 1
    assert [call.name for call in plan_calls([FLAT], {"type": "function", "name": "flat"}, 1)] == ["flat"]


def test_auto_answers_in_text_after_a_tool_result_but_required_calls_again() -> None:
    assert plan_calls([WEATHER], "auto", 1, answered=True) == []
    assert len(plan_calls([WEATHER], "required", 1, answered=True)) == 1


def test_auto_calls_as_often_as_asked() -> None:
    called = sum(bool(plan_calls([WEATHER], "auto", seed, auto_probability=0.3)) for seed in range(500))
    assert 100 < called < 200


def test_two_calls_only_if_parallel() -> None:
    counts = {len(plan_calls([WEATHER, CLOCK], "required", seed)) for seed in range(40)}
    assert counts == {1, 2}
    assert all(len(plan_calls([WEATHER, CLOCK], "required", seed, parallel=False)) == 1 for seed in range(40))


def test_unusable_parameters_name_the_function() -> None:
    bad = {"type": "function", "function": {"name": "broken", "parameters": {"type": "nope"}}}
    with pytest.raises(SchemaError, match="'broken'"):
        plan_calls([bad], "auto", 1)
    never = {"type": "function", "function": {"name": "never", "parameters": {"not": {}}}}
    with pytest.raises(SchemaError, match="'never'"):
        plan_calls([never], "required", 1)


def test_call_ids_are_deterministic_and_distinct() -> None:
    assert call_id(1, 0) == call_id(1, 0)
    assert len({call_id(seed, index) for seed in range(10) for index in range(3)}) == 30
    assert re.fullmatch("chatcmpl-tool-[0-9a-f]{32}", call_id(1, 0))
