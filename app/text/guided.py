"""vLLM's structured outputs and OpenAI's response_format: text that keeps to the constraint.

Must not know requests; a constraint and a seed go in, text comes out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from app.text.json_schema import SchemaError, generate_json
from app.text.schema.errors import DeadEndError
from app.text.schema.regex_text import write_match

_KINDS = ("json", "regex", "choice", "json_object", "grammar", "structural_tag")
_OBJECT_SCHEMA = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
        "active": {"type": "boolean"},
    },
    "required": ["id", "name", "tags", "active"],
}


def generate_choice(choices: Sequence[str], seed: int) -> str:
    """One of the choices. Raises SchemaError if there is none."""
    if not choices or not all(isinstance(choice, str) for choice in choices):
        raise SchemaError("choice must be a list of at least one string.")
    return Random(seed).choice(list(choices))


def generate_matching(pattern: str, seed: int) -> str:
    """A text that the whole of `pattern` matches. Raises SchemaError (not a regex, or not supported)."""
    if not isinstance(pattern, str):
        raise SchemaError(f"regex must be a string, not {type(pattern).__name__}.")
    try:
        return write_match(pattern, Random(seed), whole=True)
    except DeadEndError:
        raise SchemaError(f"No text could be made that matches the pattern {pattern!r}.") from None
    except RecursionError:
        raise SchemaError("The pattern is nested too deeply.") from None


def generate_json_object(seed: int) -> str:
    """A small JSON object, for response_format json_object."""
    return generate_json(_OBJECT_SCHEMA, seed)


def structured_text(constraint: Mapping[str, Any], seed: int) -> str:
    """Text for vLLM's `structured_outputs` object: json (schema or its text), regex, choice or json_object.

    Exactly one may be set. Raises SchemaError; grammar and structural_tag always do (not simulated)."""
    kinds = [kind for kind in _KINDS if constraint.get(kind) not in (None, False)]
    if len(kinds) != 1:
        given = ", ".join(kinds) or "none"
        raise SchemaError(
            f"Exactly one kind of structured output may be set ({', '.join(_KINDS)}), not {given}."
        )
    kind, value = kinds[0], constraint[kinds[0]]
    if kind == "json":
        return generate_json(_schema_of(value), seed)
    if kind == "regex":
        return generate_matching(value, seed)
    if kind == "choice":
        return generate_choice(value, seed)
    if kind == "json_object":
        return generate_json_object(seed)
    raise SchemaError(
        f"Structured outputs by {kind} are not simulated; use json, regex, choice or json_object."
    )


def _schema_of(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"The JSON Schema is not valid JSON: {error}.") from None
