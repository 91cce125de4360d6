"""vLLM's structured outputs and OpenAI's response_format: text that keeps to the constraint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def generate_choice(choices: Sequence[str], seed: int) -> str:
    """One of the choices. Raises SchemaError if there is none."""
    raise NotImplementedError


def generate_matching(pattern: str, seed: int) -> str:
    """A text that the whole of `pattern` matches. Raises SchemaError (not a regex, or not supported)."""
    raise NotImplementedError


def generate_json_object(seed: int) -> str:
    """A small JSON object, for response_format json_object."""
    raise NotImplementedError


def structured_text(constraint: dict[str, Any], seed: int) -> str:
    """Text for vLLM's `structured_outputs` object: json (schema or its text), regex, choice or json_object.

    Exactly one may be set. Raises SchemaError; grammar and structural_tag always do (not simulated)."""
    raise NotImplementedError
