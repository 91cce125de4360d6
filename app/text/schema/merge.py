"""Joins schemas that must hold together into one flat schema, as far as keywords can be joined.

Must not choose: anyOf, oneOf, not and conditions are collected under private keys for the builder. A
contradiction that shows raises DeadEndError.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import Any

from app.text.schema.errors import DeadEndError

Schema = dict[str, Any]

# Lists of what must hold in addition: groups of alternatives, negations, conditions, patterns, contains.
GROUPS, NOTS, CONDITIONS, PATTERNS, CONTAINS = "*groups", "*nots", "*conditions", "*patterns", "*contains"

ALL_TYPES = ("string", "object", "array", "integer", "number", "boolean", "null")
_LARGEST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains")
_SMALLEST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains")
_JOINED = ("items", "propertyNames", "unevaluatedItems")
_CONCATENATED = (GROUPS, NOTS, CONDITIONS, PATTERNS, CONTAINS)
_IGNORED = ("$defs", "definitions", "title", "description", "default", "examples", "example", "deprecated")


def flat(schema: Schema) -> Schema:
    """A copy whose alternatives, negations, conditions, pattern and contains stand in lists."""
    found = {key: value for key, value in schema.items() if key not in _IGNORED}
    groups = [found.pop(key) for key in ("anyOf", "oneOf") if key in found]
    if groups:
        found[GROUPS] = groups
    negated = found.pop("not", None)
    if isinstance(negated, dict) and negated.keys() == {"not"}:
        found["allOf"] = [*found.get("allOf", ()), negated["not"]]
    elif negated is not None:
        found[NOTS] = [negated]
    if "if" in found:
        found[CONDITIONS] = [(found.pop("if"), found.pop("then", True), found.pop("else", True))]
    if "pattern" in found:
        found[PATTERNS] = [found.pop("pattern")]
    if "contains" in found:
        found[CONTAINS] = [(found.pop("contains"), found.pop("minContains", 1))]
    if isinstance(found.get("type"), str):
        found["type"] = [found["type"]]
    if "const" in found:
        found["enum"] = [found.pop("const")]
    return found


def both(first: Any, second: Any) -> Any:
    """A schema that holds if both do."""
    if first is True or first == {}:
        return second
    if second is True or second == {}:
        return first
    if first is False or second is False:
        return False
    return first if first == second else {"allOf": [first, second]}


def merge(first: Schema, second: Schema) -> Schema:
    """Two flat schemas as one. Raises DeadEndError if they contradict each other openly."""
    found = {**first, **second}
    for key in first.keys() & second.keys():
        found[key] = _merge_keyword(key, first[key], second[key])
    _merge_objects(found, first, second)
    if "prefixItems" in first or "prefixItems" in second:
        _merge_arrays(found, first, second)
    return found


def _merge_keyword(key: str, one: Any, two: Any) -> Any:
    if key in _CONCATENATED:
        return [*one, *(item for item in two if item not in one)]
    if key == "type":
        return _merge_types(one, two)
    if key == "enum":
        return _merge_enums(one, two)
    if key in _LARGEST:
        return max(one, two)
    if key in _SMALLEST:
        return min(one, two)
    if key == "multipleOf":
        return _merge_multiples(one, two)
    if key == "uniqueItems":
        return one or two
    if key == "required":
        return [*one, *(name for name in two if name not in one)]
    if key in _JOINED:
        return both(one, two)
    if key == "dependentRequired":
        return {name: [*one.get(name, ()), *two.get(name, ())] for name in {**one, **two}}
    if key in ("patternProperties", "dependentSchemas"):
        return {name: both(one.get(name, True), two.get(name, True)) for name in {**one, **two}}
    return two


def _merge_types(one: list[str], two: list[str]) -> list[str]:
    found = [name for name in one if name in two or (name == "integer" and "number" in two)]
    if "number" in one and "integer" in two and "integer" not in found:
        found.append("integer")
    if not found:
        raise DeadEndError(f"nothing is both {' or '.join(one)} and {' or '.join(two)}")
    return found


def _merge_enums(one: list[Any], two: list[Any]) -> list[Any]:
    found = [value for value in one if any(same(value, other) for other in two)]
    if not found:
        raise DeadEndError(f"no value is allowed by both {one!r} and {two!r}")
    return found


def _merge_multiples(one: float, two: float) -> float:
    first, second = Fraction(str(one)), Fraction(str(two))
    both_of = Fraction(
        lcm(first.numerator * second.denominator, second.numerator * first.denominator),
        first.denominator * second.denominator,
    )
    return int(both_of) if both_of.denominator == 1 else float(both_of)


def _merge_objects(found: Schema, first: Schema, second: Schema) -> None:
    """properties, with what the other side says of names that it does not list."""
    if "properties" in found:
        names = {**first.get("properties", {}), **second.get("properties", {})}
        found["properties"] = {name: both(_for_name(first, name), _for_name(second, name)) for name in names}
    for key in ("additionalProperties", "unevaluatedProperties"):
        if key in found:
            found[key] = both(first.get(key, True), second.get(key, True))


def _for_name(schema: Schema, name: str) -> Any:
    """What a flat schema says of this listed or additional property (patternProperties apart)."""
    properties = schema.get("properties", {})
    if name in properties:
        return properties[name]
    if schema.get("patternProperties"):
        return True  # may or may not apply: the whole instance is checked in the end
    return schema.get("additionalProperties", True)


def _merge_arrays(found: Schema, first: Schema, second: Schema) -> None:
    one, two = first.get("prefixItems", []), second.get("prefixItems", [])
    rest_one, rest_two = first.get("items", True), second.get("items", True)
    count = max(len(one), len(two))
    found["prefixItems"] = [
        both(one[at] if at < len(one) else rest_one, two[at] if at < len(two) else rest_two)
        for at in range(count)
    ]


def same(one: Any, two: Any) -> bool:
    """Equality as JSON Schema means it: 1 and 1.0 are equal, 1 and true are not."""
    if isinstance(one, bool) or isinstance(two, bool):
        return one is two
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(same, one, two))
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    return bool(one == two)
