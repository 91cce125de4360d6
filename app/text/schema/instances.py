"""Builds one instance of a schema, depth first; whether it is valid is checked by the caller.

Owns objects and arrays. Every choice comes from one seeded stream.
"""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

from app.text.schema.errors import DeadEndError, SchemaError
from app.text.schema.flatten import Flattener
from app.text.schema.formats import key as natural_key
from app.text.schema.merge import ALL_TYPES, CONTAINS, PATTERNS, Schema, both, flat, merge
from app.text.schema.regex_text import compile_pattern, write_match
from app.text.schema.scalars import make_integer, make_number, make_string

_USUAL_DEPTH = 4  # deeper, only what must be there is made
_MAX_DEPTH = 60
_USUAL_VALUES, _MAX_VALUES = 600, 5_000
_HINTS = (
    (("properties", "required", "additionalProperties", "patternProperties", "minProperties"), "object"),
    (("propertyNames", "dependentRequired", "dependentSchemas", "maxProperties"), "object"),
    (("items", "prefixItems", CONTAINS, "minItems", "maxItems", "uniqueItems"), "array"),
    (("minLength", "maxLength", PATTERNS, "format"), "string"),
    (("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "number"),
)


class Builder:
    """One attempt. thrift: probability that an optional property is left out. wild: where no type is asked
    for, try any, also such as the other keywords do not suggest."""

    def __init__(self, flattener: Flattener, random: Random, thrift: float, *, wild: bool = False) -> None:
        self._flattener = flattener
        self._random = random
        self._thrift = thrift
        self._wild = wild
        self._values = 0
        self._stretch = 1  # above 1 where unlike values are wanted

    @property
    def num_values(self) -> int:
        """How many values were made: the cost of this attempt."""
        return self._values

    def build(self, schema: Any, name: str = "", depth: int = 0) -> Any:
        """A value for the schema; `name` is its property's. Raises DeadEndError, SchemaError."""
        self._values += 1
        if depth > _MAX_DEPTH:
            raise SchemaError("The JSON Schema demands values that are nested without end.")
        if self._values > _MAX_VALUES:
            raise SchemaError(f"The JSON Schema demands more than {_MAX_VALUES} values.")
        found = self._flattener.flatten(schema, self._random, short=self._is_short(depth))
        if "enum" in found:
            return self._random.choice(self._allowed(found))
        match self._choose_type(found, depth):
            case "object":
                return self._object(found, depth)
            case "array":
                return self._array(found, name, depth)
            case "string":
                return make_string(found, name, self._random, self._stretch)
            case "integer":
                return make_integer(found, self._random, self._stretch)
            case "number":
                return make_number(found, self._random)
            case "boolean":
                return self._random.random() < 0.5
            case _:
                return None

    def _is_short(self, depth: int) -> bool:
        return depth >= _USUAL_DEPTH or self._values > _USUAL_VALUES

    def _allowed(self, found: Schema) -> list[Any]:
        types = found.get("type", ALL_TYPES)
        allowed = [value for value in found["enum"] if _has_type(value, types) and _fits(value, found)]
        if not allowed:
            raise DeadEndError(f"no value of {found['enum']!r} is allowed")
        return allowed

    def _choose_type(self, found: Schema, depth: int) -> str:
        types: list[str] = list(found.get("type", ()))
        hinted = [kind for keys, kind in _HINTS if any(key in found for key in keys)]
        if not types and self._wild and self._random.random() < 0.6:
            return self._random.choice(ALL_TYPES)
        if not types:
            return hinted[0] if hinted else "string"
        if len(types) > 1 and "null" in types and self._random.random() < 0.8:
            types.remove("null")  # null is seldom what a reader wants to see
        if self._is_short(depth):
            simple = [name for name in types if name not in ("object", "array")]
            types = simple or types
        elif hinted and hinted[0] in types and self._random.random() < 0.8:
            return hinted[0]
        return self._random.choice(types)

    def _object(self, found: Schema, depth: int) -> dict[str, Any]:
        found, names = self._choose_names(found, depth)
        names = self._fill_names(found, names)
        taken = set(names)
        listed = [name for name in found.get("properties", {}) if name in taken]
        order = dict.fromkeys([*listed, *names])
        return {name: self.build(_property_schema(found, name), name, depth + 1) for name in order}

    def _choose_names(self, found: Schema, depth: int) -> tuple[Schema, list[str]]:
        """The schema with its dependencies merged in, and the listed properties that the object has."""
        chosen: dict[str, None] = dict.fromkeys(found.get("required", ()))
        most = found.get("maxProperties")
        room = (len(chosen) + 40 if most is None else int(most)) - len(chosen)
        if not self._is_short(depth):
            for name, schema in found.get("properties", {}).items():
                if name in chosen or schema is False or room <= 0 or self._random.random() < self._thrift:
                    continue
                if self._flattener.cost(schema) < _USUAL_DEPTH + 4 and _name_fits(found, name):
                    chosen[name] = None
                    room -= 1
        done: set[str] = set()
        while pending := [name for name in chosen if name not in done]:
            for name in pending:
                done.add(name)
                needs = found.get("dependentRequired", {}).get(name, ())
                extra = found.get("dependentSchemas", {}).get(name)
                if extra is not None:
                    short = self._is_short(depth)
                    found = merge(found, self._flattener.flatten(extra, self._random, short=short))
                chosen.update(
                    dict.fromkeys((*needs, *(found.get("required", ()) if extra is not None else ())))
                )
        return found, list(chosen)

    def _fill_names(self, found: Schema, names: list[str]) -> list[str]:
        """Add names until there are minProperties of them: listed ones first, then new ones."""
        least = int(found.get("minProperties", 0))
        if least > _MAX_VALUES:
            raise SchemaError(f"minProperties is {least}; at most {_MAX_VALUES} can be generated.")
        taken = set(names)
        spare = [
            name
            for name, schema in found.get("properties", {}).items()
            if schema is not False and name not in taken and _name_fits(found, name)
        ]
        names = [*names, *spare[: max(0, least - len(names))]]
        is_map = not found.get("properties") and self._has_room_for_more(found)
        wanted = max(least, self._random.randint(1, 3) if is_map and not names else 0)
        wanted = min(wanted, int(found.get("maxProperties", wanted)))
        for attempt in range(20 * wanted):
            if len(names) >= wanted:
                break
            if (name := self._new_name(found, attempt)) not in names and name is not None:
                names.append(name)
        if len(names) < least:
            raise DeadEndError(f"found no {least} property names")
        return names

    def _has_room_for_more(self, found: Schema) -> bool:
        patterns = [schema for schema in found.get("patternProperties", {}).values() if schema is not False]
        extra = found.get("additionalProperties", found.get("unevaluatedProperties"))
        return bool(patterns) or isinstance(extra, dict)

    def _new_name(self, found: Schema, attempt: int) -> str | None:
        """A name that is not listed but allowed: one that a pattern asks for, or a new one."""
        patterns = [
            source for source, schema in found.get("patternProperties", {}).items() if schema is not False
        ]
        closed = found.get("additionalProperties") is False or found.get("unevaluatedProperties") is False
        if patterns and (closed or attempt % 2 == 0):
            name = write_match(self._random.choice(patterns), self._random)
        elif closed:
            return None
        elif "propertyNames" in found:
            name = str(self.build(both({"type": "string"}, found["propertyNames"]), "key", _USUAL_DEPTH))
        else:
            name = natural_key(self._random, attempt)
        return name if _name_fits(found, name) and _property_schema(found, name) is not False else None

    def _array(self, found: Schema, name: str, depth: int) -> list[Any]:
        prefix = found.get("prefixItems", [])
        rest = found.get("items", found.get("unevaluatedItems", True))
        musts = [schema for schema, least in found.get(CONTAINS, []) for _ in range(int(least))]
        least = max(int(found.get("minItems", 0)), len(musts))
        if least > _MAX_VALUES:
            raise SchemaError(f"minItems is {least}; at most {_MAX_VALUES} can be generated.")
        usual = (
            least
            if self._is_short(depth) or self._thrift == 1.0
            else max(least, len(prefix), self._random.randint(1, 3))
        )
        if rest is False:
            usual = min(usual, len(prefix))
        count = min(usual, int(found.get("maxItems", usual)))
        unique = bool(found.get("uniqueItems"))
        array: list[Any] = []
        seen: set[str] | None = set() if unique else None
        for at in range(count):
            schema = prefix[at] if at < len(prefix) else rest
            behind = count - at <= len(musts)
            if musts and (behind or schema in (True, {})):
                schema = both(schema, musts.pop(0))
            try:
                array.append(self._item(schema, name, depth, seen))
            except DeadEndError:
                if len(array) < least:
                    raise
                break
        if len(array) < least or musts:
            raise DeadEndError(f"an array cannot have the {least} items it must have")
        return array

    def _item(self, schema: Any, name: str, depth: int, seen: set[str] | None) -> Any:
        singular = name.removesuffix("s")
        if seen is None:
            return self.build(schema, singular, depth + 1)
        try:
            for attempt in range(40):
                self._stretch = 1 if attempt < 4 and len(seen) < 20 else 10_000
                value = self.build(schema, singular, depth + 1)
                text = json.dumps(value, sort_keys=True)
                if text not in seen:
                    seen.add(text)
                    return value
        finally:
            self._stretch = 1
        raise DeadEndError("found no further item that differs from the others")


def _property_schema(found: Schema, name: str) -> Any:
    """What a flat object schema says of this property."""
    schema = found.get("properties", {}).get(name)
    for source, other in found.get("patternProperties", {}).items():
        if compile_pattern(source).compiled.search(name):
            schema = other if schema is None else both(schema, other)
    if schema is None:
        schema = found.get("additionalProperties", found.get("unevaluatedProperties", True))
    return schema


def _name_fits(found: Schema, name: str) -> bool:
    """propertyNames, as far as it can be told without references."""
    names = found.get("propertyNames", True)
    if not isinstance(names, dict):
        return names is not False
    flattened = flat(names)
    if "enum" in flattened and name not in flattened["enum"]:
        return False
    return _fits(name, flattened)


def _has_type(value: Any, types: Any) -> bool:
    if value is None:
        return "null" in types
    if isinstance(value, bool):
        return "boolean" in types
    if isinstance(value, str):
        return "string" in types
    if isinstance(value, list):
        return "array" in types
    if isinstance(value, dict):
        return "object" in types
    return "number" in types or ("integer" in types and float(value).is_integer())


def _fits(value: Any, found: Schema) -> bool:
    """The simple limits of strings and numbers; the rest is checked in the end."""
    if isinstance(value, str):
        fits = int(found.get("minLength", 0)) <= len(value) <= found.get("maxLength", len(value))
        return fits and all(re.search(compile_pattern(p).compiled, value) for p in found.get(PATTERNS, ()))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return bool(found.get("minimum", value) <= value <= found.get("maximum", value))
    return True


def to_json(value: Any) -> str:
    """Compact JSON text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
