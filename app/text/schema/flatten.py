"""From a schema with references and alternatives to one flat schema, by choosing a branch of each.

Owns the choices (seeded) and the end of recursion. Must not build values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Any

from app.text.schema.errors import DeadEndError, SchemaError
from app.text.schema.merge import ALL_TYPES, CONDITIONS, GROUPS, NOTS, Schema, flat, merge
from app.text.schema.normalise import follow

_MAX_CHAIN = 60  # loops are refused before; this is only a net
_COST_DEPTH = 12


class Flattener:
    """Flattens nodes of one document."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._nodes = frozenset(_node_ids(document))
        self._costs: dict[tuple[int, int], float] = {}

    def flatten(self, schema: Any, random: Random, *, short: bool) -> Schema:
        """short: take the alternatives that end soonest. Raises DeadEndError, SchemaError (recursion)."""
        return self._flatten(schema, random, short, 0)

    def _flatten(self, schema: Any, random: Random, short: bool, chain: int) -> Schema:
        if schema is True:
            return {}
        if schema is False:
            raise DeadEndError("a value is needed where the schema false allows none")
        if chain > _MAX_CHAIN:
            raise SchemaError("The JSON Schema refers to itself without end.")
        found = flat(schema)
        ref, parts = found.pop("$ref", None), found.pop("allOf", [])
        if ref is not None:
            parts = [follow(self._document, ref), *parts]
        for part in parts:
            found = merge(found, self._flatten(part, random, short, chain + 1))
        for choices in found.pop(GROUPS, []):
            found = self._with_one_of(found, choices, random, short, chain)
        for condition in found.pop(CONDITIONS, []):
            found = self._with_condition(found, condition, random, short, chain)
        return _without_negated_types(found)

    def _with_one_of(
        self, found: Schema, choices: list[Any], random: Random, short: bool, chain: int
    ) -> Schema:
        order = random.sample(choices, len(choices))
        if short:
            order.sort(key=self.cost)
        failure = DeadEndError("a schema has no alternative")
        for choice in order:
            try:
                return merge(found, self._flatten(choice, random, short, chain + 1))
            except DeadEndError as error:
                failure = error
        raise failure

    def _with_condition(
        self, found: Schema, condition: tuple[Any, Any, Any], random: Random, short: bool, chain: int
    ) -> Schema:
        test, then, otherwise = condition
        taken, refused = [test, then], [otherwise, {"not": test}]
        order = [taken, refused] if random.random() < 0.5 else [refused, taken]
        failure = DeadEndError("a condition cannot be met")
        for parts in order:
            try:
                merged = found
                for part in parts:
                    merged = merge(merged, self._flatten(part, random, short, chain + 1))
                return merged
            except DeadEndError as error:
                failure = error
        raise failure

    def cost(self, schema: Any) -> float:
        """How many levels an instance needs at least; infinite if it seems never to end."""
        return self._cost(schema, _COST_DEPTH)

    def _cost(self, schema: Any, depth: int) -> float:
        if not isinstance(schema, dict) or "enum" in schema or "const" in schema:
            return 0
        if depth == 0:
            return math.inf
        # Only nodes of the document, which lives as long as this object, may be known by their id.
        key = (id(schema), depth)
        if key not in self._costs:
            cost = max(self._part_costs(schema, depth - 1), default=0)
            if key[0] not in self._nodes:
                return cost
            self._costs[key] = cost
        return self._costs[key]

    def _part_costs(self, schema: Schema, depth: int) -> Iterator[float]:
        if "$ref" in schema:
            yield self._cost(follow(self._document, schema["$ref"]), depth)
        for part in schema.get("allOf", ()):
            yield self._cost(part, depth)
        for key in ("anyOf", "oneOf"):
            if schema.get(key):
                yield min(self._cost(part, depth) for part in schema[key])
        properties = schema.get("properties", {})
        for name in schema.get("required", ()):
            yield 1 + self._cost(properties.get(name, True), depth)
        if schema.get("minItems", 0) > 0:
            for part in (
                *schema.get("prefixItems", ())[: int(schema["minItems"])],
                schema.get("items", True),
            ):
                yield 1 + self._cost(part, depth)


def _node_ids(node: Any) -> Iterator[int]:
    if isinstance(node, (dict, list)):
        yield id(node)
        for part in node.values() if isinstance(node, dict) else node:
            yield from _node_ids(part)


def _without_negated_types(found: Schema) -> Schema:
    """`not: {type: ..}` and `not: {required: [..]}` said positively; other negations stay to be checked."""
    for negated in found.get(NOTS, []):
        if negated is True or negated == {}:
            raise DeadEndError("a schema forbids everything")
        if isinstance(negated, dict) and negated.keys() == {"type"}:
            banned = negated["type"] if isinstance(negated["type"], list) else [negated["type"]]
            banned = [*banned, *(["integer"] if "number" in banned else [])]
            left = [name for name in found.get("type", ALL_TYPES) if name not in banned]
            if not left:
                raise DeadEndError("every type is forbidden")
            found = {**found, "type": left}
        if isinstance(negated, dict) and negated.keys() == {"required"} and len(negated["required"]) == 1:
            name = negated["required"][0]
            found = {**found, "properties": {**found.get("properties", {}), name: False}}
    return found
