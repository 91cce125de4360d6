"""A valid JSON instance for a JSON Schema, deterministic from a seed.

Must not fetch a remote $ref. Understands draft 2020-12 and draft 7 mixed, as clients send them.
"""

from __future__ import annotations

from typing import Any


class SchemaError(ValueError):
    """The schema is not valid, cannot be met or is not supported; one sentence (HTTP 400)."""


def check_schema(schema: Any) -> None:
    """Raises SchemaError if `schema` is no valid JSON Schema."""
    raise NotImplementedError


def generate_instance(schema: Any, seed: int) -> Any:
    """A JSON value that `schema` accepts. Raises SchemaError."""
    raise NotImplementedError


def generate_json(schema: Any, seed: int) -> str:
    """As generate_instance, as compact JSON text."""
    raise NotImplementedError
