"""Rewrites a schema of any common dialect into self-contained draft 2020-12, and checks it.

After it: no $schema, $id or anchors, each $ref is "#" or "#/pointer" into the same document. Owns the
dialects; must not know how instances are made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from app.text.schema.errors import SchemaError
from app.text.schema.regex_text import compile_pattern

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_VALUES = ("enum", "const", "default", "examples", "example", "required", "type", "dependentRequired")
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_MAX_DEPTH = 100
_MAX_CHAIN = 40
_MAX_WEIGHT = 5_000


def normalise(schema: Any) -> dict[str, Any] | bool:
    """The schema as self-contained draft 2020-12. Raises SchemaError."""
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        raise SchemaError(f"A JSON Schema must be an object or a boolean, not {type(schema).__name__}.")
    rewriter = _Rewriter()
    found: dict[str, Any] = rewriter.schema(schema, "#", 0)
    rewriter.resolve_refs(found)
    _refuse_loops(found, rewriter.nodes)
    # Slow to import, and most servers see no schema.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError as LibrarySchemaError

    try:
        Draft202012Validator.check_schema(found)
    except LibrarySchemaError as error:
        where = "/".join(map(str, error.absolute_path))
        raise SchemaError(
            f"The JSON Schema is not valid at {where or 'its root'}: {error.message}."
        ) from None
    except RecursionError:
        raise SchemaError("The JSON Schema is nested too deeply.") from None
    return found


def follow(document: Any, ref: str) -> Any:
    """What "#" or "#/pointer" names in the document. Raises SchemaError."""
    node = document
    for part in ref.removeprefix("#").split("/")[1:]:
        step = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict) and step in node:
            node = node[step]
        elif isinstance(node, list) and step.isdecimal() and int(step) < len(node):
            node = node[int(step)]
        else:
            raise SchemaError(f"The $ref {ref!r} points to nothing in the JSON Schema.")
    return node


class _Rewriter:
    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # $id or #anchor -> pointer
        self._refs: list[dict[str, Any]] = []
        self.nodes: list[dict[str, Any]] = []

    def schema(self, schema: Any, path: str, depth: int) -> Any:
        if not isinstance(schema, dict):
            return schema
        if depth > _MAX_DEPTH:
            raise SchemaError(f"The JSON Schema is nested more than {_MAX_DEPTH} levels deep.")
        found: dict[str, Any] = {}
        self.nodes.append(found)
        for key, value in schema.items():
            self._keyword(found, str(key), value, path, depth)
        _modernise(found)
        return found

    def _keyword(self, found: dict[str, Any], key: str, value: Any, path: str, depth: int) -> None:
        inside = f"{path}/{_escaped(key)}"
        if key == "$schema" or (key == "$comment" and isinstance(value, str)):
            return
        if key in ("$id", "id") and isinstance(value, str):
            self._names[value.rstrip("#")] = path
            if key == "$id":
                return
        if key in ("$anchor", "$dynamicAnchor") and isinstance(value, str):
            self._names["#" + value] = path
            return
        if key in ("$ref", "$dynamicRef", "$recursiveRef") and isinstance(value, str):
            found["$ref"] = value
            self._refs.append(found)
        elif key in _VALUES:
            found[key] = value
        elif key in _MAPS and isinstance(value, dict):
            items = value.items()
            found[key] = {
                # The library searches with re, so patterns must be spelled in Python's dialect.
                _python(name) if key == "patternProperties" else name: self.schema(
                    sub, f"{inside}/{_escaped(name)}", depth + 1
                )
                for name, sub in items
            }
        elif isinstance(value, list) and (key in _LISTS or key == "items"):
            found[key] = [self.schema(sub, f"{inside}/{place}", depth + 1) for place, sub in enumerate(value)]
        elif isinstance(value, dict):
            found[key] = self.schema(value, inside, depth + 1)
        else:
            found[key] = _python(value) if key == "pattern" and isinstance(value, str) else value

    def resolve_refs(self, document: Any) -> None:
        for node in self._refs:
            ref = node["$ref"] = self._pointer(node["$ref"])
            try:
                follow(document, ref)
            except SchemaError:
                node["$ref"] = moved = _moved(ref)
                follow(document, moved)

    def _pointer(self, ref: str) -> str:
        if ref == "#" or ref.startswith("#/"):
            return ref
        if ref in self._names:
            return self._names[ref]
        base, _, fragment = ref.partition("#")
        for name, path in self._names.items():
            if base and (name == base or name.endswith("/" + base)) and not name.startswith("#"):
                if fragment and not fragment.startswith("/"):
                    return self._pointer("#" + fragment)
                return path + fragment
        raise SchemaError(f"The $ref {ref!r} is not part of the JSON Schema; a remote one is never fetched.")


def _refuse_loops(document: Any, nodes: list[dict[str, Any]]) -> None:
    """A schema that applies itself to the very same value has no meaning, and no validator ends on it.

    One that applies too many to one value (references to references, each twice) keeps it busy for hours."""
    weights: dict[int, int] = {}

    def weigh(node: Any, path: tuple[int, ...]) -> int:
        """How many schemas apply to one value."""
        if not isinstance(node, dict):
            return 1
        if (known := weights.get(id(node))) is not None:
            return known
        if id(node) in path:
            raise SchemaError("The JSON Schema refers to itself without end.")
        if len(path) >= _MAX_CHAIN:
            raise SchemaError(
                f"The JSON Schema has a chain of more than {_MAX_CHAIN} references or compositions."
            )
        path = (*path, id(node))
        weight = 1 + sum(weigh(part, path) for part in _in_place(document, node))
        if weight > _MAX_WEIGHT:
            raise SchemaError(f"The JSON Schema applies more than {_MAX_WEIGHT} schemas to one value.")
        weights[id(node)] = weight
        return weight

    for node in nodes:
        weigh(node, ())


def _in_place(document: Any, node: dict[str, Any]) -> Iterator[Any]:
    """The schemas that a schema applies to the same value."""
    if "$ref" in node:
        yield follow(document, node["$ref"])
    for key in _IN_PLACE:
        if key in node:
            yield from node[key] if isinstance(node[key], list) else [node[key]]
    dependent = node.get("dependentSchemas")
    if isinstance(dependent, dict):
        yield from dependent.values()


def _moved(ref: str) -> str:
    """A pointer through keywords that _modernise renames."""
    for old, new in (
        ("/items/", "/prefixItems/"),
        ("/additionalItems", "/items"),
        ("/dependencies/", "/dependentSchemas/"),
    ):
        ref = ref.replace(old, new)
    return ref


def _python(pattern: str) -> str:
    return compile_pattern(pattern).compiled.pattern


def _escaped(name: str) -> str:
    return str(name).replace("~", "~0").replace("/", "~1").replace("%", "%25")


def _modernise(schema: dict[str, Any]) -> None:
    """Older drafts' and OpenAPI's keywords, in place."""
    if isinstance(schema.get("items"), list):
        schema["prefixItems"] = schema.pop("items")
        if "additionalItems" in schema:
            schema["items"] = schema.pop("additionalItems")
    schema.pop("additionalItems", None)
    _split_dependencies(schema)
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(schema.get(exclusive), bool) and schema.pop(exclusive) and limit in schema:
            schema[exclusive] = schema.pop(limit)
    if schema.pop("nullable", None) is True and "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        schema["type"] = [*types, *(["null"] if "null" not in types else [])]
        if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
            schema["enum"] = [*schema["enum"], None]


def _split_dependencies(schema: dict[str, Any]) -> None:
    dependencies = schema.pop("dependencies", None)
    if not isinstance(dependencies, dict):
        return
    for name, needs in dependencies.items():
        keyword = "dependentRequired" if isinstance(needs, list) else "dependentSchemas"
        schema.setdefault(keyword, {})[name] = needs
