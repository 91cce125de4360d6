from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable
from datetime import date, datetime
from importlib.util import module_from_spec, spec_from_file_location
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError as LibrarySchemaError

from app.text.json_schema import SchemaError, check_schema, generate_instance, generate_json


def load_cases() -> dict[str, Any]:
    spec = spec_from_file_location("schema_cases", Path(__file__).with_name("schema_cases.py"))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    cases: dict[str, Any] = module.CASES
    return cases


CASES = load_cases()
# Spelled in a dialect or with a pattern that the library cannot read as it stands.
OTHER_DIALECTS = {"draft4_exclusive", "nullable", "nullable_enum", "moved_items_pointer", "anchor"}
NOT_PYTHON = (r"\p{", "(?<year>")


def validator_of(schema: Any) -> Any:
    """The library's validator for the schema as sent, or None if it cannot read that."""
    text = json.dumps(schema)
    if any(json.dumps(part)[1:-1] in text for part in NOT_PYTHON):
        return None
    older = any(key in text for key in ('"dependencies"', '"additionalItems"', "draft-07"))
    cls = Draft7Validator if older else Draft202012Validator
    try:
        cls.check_schema(schema)
    except LibrarySchemaError:
        return None
    return cls(schema)


@pytest.mark.parametrize("name", CASES)
def test_instances_of_every_kind_of_schema_are_valid(name: str) -> None:
    schema = CASES[name]
    validator = None if name in OTHER_DIALECTS else validator_of(schema)
    for seed in range(6):
        value = json.loads(generate_json(schema, seed))
        if validator is not None:
            validator.validate(value)
        assert generate_json(schema, seed) == generate_json(json.loads(json.dumps(schema)), seed)


def wrapped(schema: Any) -> list[Any]:
    defs = {"$defs": {"inner": schema}}
    inner = {"$ref": "#/$defs/inner"}
    return [
        {
            **defs,
            "type": "object",
            "properties": {"value": inner},
            "required": ["value"],
            "additionalProperties": False,
        },
        {**defs, "type": "array", "items": {"anyOf": [inner, {"type": "null"}]}, "minItems": 2},
    ]


SELF_CONTAINED = [
    name for name in CASES if "$ref" not in json.dumps(CASES[name]) and name not in OTHER_DIALECTS
]


@pytest.mark.parametrize("name", SELF_CONTAINED)
def test_instances_of_wrapped_schemas_are_valid(name: str) -> None:
    for schema in wrapped(CASES[name]):
        validator = validator_of(schema)
        for seed in range(2):
            value = json.loads(generate_json(schema, seed))
            if validator is not None:
                validator.validate(value)


def test_more_than_two_hundred_schemas_are_covered() -> None:
    assert len(CASES) + 2 * len(SELF_CONTAINED) >= 400


@pytest.mark.parametrize(
    ("name", "accepts"),
    [
        ("date", date.fromisoformat),
        ("date-time", lambda text: datetime.fromisoformat(text.replace("Z", "+00:00"))),
        ("uuid", uuid.UUID),
        ("ipv4", IPv4Address),
        ("ipv6", IPv6Address),
        ("uri", lambda text: urlsplit(text).scheme == "https" or pytest.fail(text)),
        ("email", lambda text: re.fullmatch(r"[^@\s]+@[^@\s]+\.[a-z]+", text) or pytest.fail(text)),
        ("time", lambda text: re.fullmatch(r"\d\d:\d\d:\d\dZ", text) or pytest.fail(text)),
        ("hostname", lambda text: re.fullmatch(r"[a-z0-9-]+(\.[a-z0-9-]+)+", text) or pytest.fail(text)),
        ("regex", re.compile),
    ],
)
def test_formats_are_kept(name: str, accepts: Callable[[str], object]) -> None:
    for seed in range(20):
        accepts(generate_instance({"type": "string", "format": name}, seed))


def test_patterns_of_other_dialects_are_kept() -> None:
    for seed in range(10):
        found = generate_instance(
            {"type": "string", "pattern": r"^(?<year>\d{4})-(?<month>0[1-9]|1[0-2])$"}, seed
        )
        assert re.fullmatch(r"\d{4}-\d{2}", found)
        assert generate_instance({"type": "string", "pattern": r"^\p{Lu}\p{L}*$"}, seed)[0].isupper()


def test_older_dialects_are_understood() -> None:
    assert generate_instance(CASES["draft4_exclusive"], 1) == 4
    assert generate_instance(CASES["nullable_enum"], 1) in ("x", None)
    first, second = generate_instance({**CASES["moved_items_pointer"], "minItems": 2}, 1)[:2]
    assert isinstance(first, int) and isinstance(second, int)
    assert all(isinstance(item, int) for item in generate_instance(CASES["anchor"], 1))


def test_seeds_give_different_instances() -> None:
    assert len({generate_json(CASES["pydantic_style"], seed) for seed in range(20)}) > 10


def test_property_order_is_the_schemas() -> None:
    for seed in range(5):
        assert list(generate_instance(CASES["keywords_as_names"], seed)) == [
            "type",
            "properties",
            "$ref",
            "items",
            "enum",
        ]


def test_plain_strings_read_naturally() -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    assert generate_instance(schema, 1)["city"].istitle()


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"type": "strnig"}, "not valid at type"),
        ({"type": "object", "properties": []}, "not valid at properties"),
        ({"properties": {"a": {"minLength": -1}}}, "properties/a/minLength"),
        ({"required": "a"}, "not valid at required"),
        ([], "an object or a boolean, not list"),
        ("x", "an object or a boolean, not str"),
        (None, "not NoneType"),
        ({"type": "string", "pattern": "("}, "regular expression"),
        ({"type": "string", "pattern": "a{3,1}"}, "regular expression"),
        ({"patternProperties": {"[": {}}}, "regular expression"),
        ({"$ref": "#/$defs/missing"}, "points to nothing"),
        ({"$ref": "https://example.com/other.json"}, "never fetched"),
        ({"items": {"$ref": "other.json#/a"}}, "never fetched"),
        ({"$ref": "#"}, "refers to itself"),
        ({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}, "refers to itself"),
        ({"not": {"$ref": "#"}}, "refers to itself"),
    ],
)
def test_schema_that_is_not_valid_is_refused_with_the_place(schema: Any, says: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(says)) as caught:
        check_schema(schema)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": "integer", "minimum": 5, "maximum": 4},
        {"type": "string", "minLength": 5, "maxLength": 4},
        {"type": "string", "enum": [1, 2]},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "array", "minItems": 2, "maxItems": 1},
        {"type": "array", "items": {"enum": [1]}, "uniqueItems": True, "minItems": 2},
        {"type": "object", "required": ["a"], "additionalProperties": False},
        {"oneOf": [{"type": "integer"}, {"type": "integer"}], "type": "integer"},
        {"not": {}},
        {"type": "string", "pattern": "^a$", "minLength": 3},
        {"type": "array", "minItems": 10**9},
        {"type": "string", "minLength": 10**9},
        {"type": "object", "minProperties": 10**9},
        {"type": "string", "pattern": "(a{1000}){1000}"},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "array", "items": {"$ref": "#"}, "minItems": 2},
        {"type": "number", "minimum": float("inf")},
    ],
)
def test_schema_that_cannot_be_met_is_refused_in_one_sentence(schema: Any) -> None:
    with pytest.raises(SchemaError) as caught:
        generate_instance(schema, 1)
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_deep_schemas_are_refused_or_met_but_never_break() -> None:
    deep: Any = {"type": "integer"}
    for _ in range(30):
        deep = {"type": "object", "properties": {"a": deep}, "required": ["a"]}
    Draft202012Validator(deep).validate(generate_instance(deep, 1))
    for _ in range(5000):
        deep = {"items": deep}
    with pytest.raises(SchemaError, match="deep"):
        check_schema(deep)
    chain = {
        "$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(900)} | {"900": {}},
        "$ref": "#/$defs/0",
    }
    with pytest.raises(SchemaError, match="chain"):
        check_schema(chain)


def test_schema_that_doubles_itself_is_refused_or_bounded() -> None:
    doubled = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(18)}
    with pytest.raises(SchemaError, match="schemas to one value"):
        check_schema({"$defs": doubled | {"a18": {}}, "$ref": "#/$defs/a0"})
    pair = {
        f"a{n}": {
            "type": "object",
            "properties": {name: {"$ref": f"#/$defs/a{n + 1}"} for name in "xy"},
            "required": ["x", "y"],
        }
        for n in range(30)
    }
    with pytest.raises(SchemaError, match="values"):
        generate_instance({"$defs": pair | {"a30": {}}, "$ref": "#/$defs/a0"}, 1)


def test_many_unlike_items_are_found() -> None:
    for item in ({"type": "integer"}, {"type": "string"}):
        found = generate_instance({"type": "array", "items": item, "uniqueItems": True, "minItems": 1500}, 1)
        assert len(set(found)) >= 1500


def test_pattern_that_cannot_match_ends_soon() -> None:
    with pytest.raises(SchemaError):
        generate_instance({"type": "string", "pattern": "^(a+)+(?=b)c$"}, 1)


def test_wide_optional_recursion_stays_small() -> None:
    schema = {"type": "object", "properties": {f"p{n}": {"$ref": "#"} for n in range(12)}}
    assert len(generate_json(schema, 3)) < 200_000


NAMES = st.sampled_from(["a", "b", "name", "city"])
LEAVES = st.one_of(
    st.builds(
        lambda low, span: {"type": "integer", "minimum": low, "maximum": low + span},
        st.integers(-9, 9),
        st.integers(0, 9),
    ),
    st.builds(
        lambda low, span: {"type": "string", "minLength": low, "maxLength": low + span},
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    st.sampled_from(["^[a-z]+$", r"\d+", "^(foo|bar)$"]).map(
        lambda source: {"type": "string", "pattern": source}
    ),
    st.lists(st.integers() | st.text(max_size=3) | st.none() | st.booleans(), min_size=1, max_size=3).map(
        lambda v: {"enum": v}
    ),
    st.sampled_from([{}, True, {"type": "null"}, {"type": ["boolean", "null"]}, {"$ref": "#/$defs/d"}]),
)


def grow(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    parts = st.lists(inner, min_size=1, max_size=3)
    names = st.lists(NAMES, max_size=2, unique=True)
    return st.one_of(
        st.builds(
            lambda properties, required, extra: {
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": extra,
            },
            st.dictionaries(NAMES, inner, max_size=3),
            names,
            inner | st.booleans(),
        ),
        st.builds(
            lambda items, low, unique: {
                "type": "array",
                "items": items,
                "minItems": low,
                "uniqueItems": unique,
            },
            inner,
            st.integers(0, 3),
            st.booleans(),
        ),
        st.builds(
            lambda first, found: {"type": "array", "prefixItems": first, "contains": found}, parts, inner
        ),
        parts.map(lambda p: {"anyOf": p}),
        parts.map(lambda p: {"oneOf": p}),
        parts.map(lambda p: {"allOf": p}),
        inner.map(lambda p: {"not": p}),
        st.builds(lambda a, b, c: {"if": a, "then": b, "else": c}, inner, inner, inner),
    )


@settings(max_examples=150)
@given(
    st.recursive(LEAVES, grow, max_leaves=8),
    LEAVES.filter(lambda leaf: leaf is True or "$ref" not in leaf),
    st.integers(),
)
def test_random_schemas_are_met_or_refused(schema: Any, definition: Any, seed: int) -> None:
    document = {"$defs": {"d": definition}, "allOf": [schema]}
    try:
        value = generate_instance(document, seed)
    except SchemaError as error:
        assert str(error).endswith(".")
    else:
        Draft202012Validator(document).validate(json.loads(json.dumps(value)))
