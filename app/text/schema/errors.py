"""The errors of schema work."""

from __future__ import annotations


class SchemaError(ValueError):
    """The schema is not valid, cannot be met or is not supported; one sentence (HTTP 400)."""


class DeadEndError(Exception):
    """This way of building an instance does not work; another may. Never leaves the schema package."""
