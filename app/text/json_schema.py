"""A valid JSON instance for a JSON Schema, deterministic from a seed.

Understands draft 2020-12, older drafts and OpenAPI's nullable, mixed as clients send them. Must not fetch
a remote $ref. Each instance is checked with the jsonschema library before it is given out.
"""

from __future__ import annotations

import json
from functools import lru_cache
from random import Random
from typing import Any

from app.text.schema.errors import DeadEndError, SchemaError
from app.text.schema.flatten import Flattener
from app.text.schema.instances import Builder, to_json
from app.text.schema.normalise import normalise

__all__ = [
    "CompiledSchema",
    "SchemaError",
    "check_schema",
    "compile_schema",
    "generate_instance",
    "generate_json",
]

_ATTEMPTS, _TAME_ATTEMPTS = 60, 12
_THRIFT = (0.3, 0.0, 1.0, 0.6)
_MAX_VALUES = 5_000
_KEPT_SCHEMAS = 256


def check_schema(schema: Any) -> None:
    """Raises SchemaError if `schema` is no valid JSON Schema, or refers to what it does not hold."""
    compile_schema(schema)


def generate_instance(schema: Any, seed: int) -> Any:
    """A JSON value that `schema` accepts. Raises SchemaError."""
    return compile_schema(schema).generate(seed)


def generate_json(schema: Any, seed: int) -> str:
    """As generate_instance, as compact JSON text."""
    return to_json(generate_instance(schema, seed))


class CompiledSchema:
    """A checked schema; made once for many instances."""

    def __init__(self, schema: Any) -> None:
        try:
            self._schema = normalise(schema)
        except RecursionError:
            raise SchemaError("The JSON Schema is nested too deeply.") from None
        from jsonschema import Draft202012Validator  # slow to import, and most servers see no schema

        self._validator = Draft202012Validator(self._schema)
        self._flattener = Flattener(self._schema)

    def generate(self, seed: int) -> Any:
        """An instance. Raises SchemaError if none is found (a contradiction, or too much to ask)."""
        failure = "every value that was tried is refused"
        num_values = 0
        for attempt in range(_ATTEMPTS):
            random = Random(f"{seed}/{attempt}")
            thrift = _THRIFT[attempt % len(_THRIFT)]
            if num_values > _MAX_VALUES:
                break  # whoever sends such a schema must not hold up the others
            builder = Builder(self._flattener, random, thrift, wild=attempt >= _TAME_ATTEMPTS)
            try:
                value = builder.build(self._schema)
            except DeadEndError as error:
                failure = str(error)
                num_values += builder.num_values
                continue
            except RecursionError:
                raise SchemaError("The JSON Schema demands values that are nested too deeply.") from None
            if self._accepts(value):
                return value
            num_values += builder.num_values
        raise SchemaError(f"No instance of the JSON Schema could be made: {failure}.")

    def _accepts(self, value: Any) -> bool:
        try:
            return self._validator.is_valid(value)
        except BaseException as error:
            # The library's compiled part turns a RecursionError into a panic, which is no Exception.
            if isinstance(error, RecursionError) or type(error).__name__ == "PanicException":
                raise SchemaError("The JSON Schema demands values that are nested too deeply.") from None
            raise


def compile_schema(schema: Any) -> CompiledSchema:
    """The compiled schema, kept for the next request that sends the same. Raises SchemaError."""
    try:
        text = json.dumps(schema)
    except RecursionError:
        raise SchemaError("The JSON Schema is nested too deeply.") from None
    return _compile_text(text)


@lru_cache(maxsize=_KEPT_SCHEMAS)
def _compile_text(text: str) -> CompiledSchema:
    return CompiledSchema(json.loads(text))
