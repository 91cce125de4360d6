"""The limits of a request's `metadata`, and filters by it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.errors import bad_request

_MOST_PAIRS = 16
_LONGEST_KEY = 64
_LONGEST_VALUE = 512


def check_metadata(metadata: Mapping[str, Any] | None) -> dict[str, str]:
    """The pairs, {} for none. Raises ApiError 400: too many, too long, or no text."""
    pairs = dict(metadata or {})
    if len(pairs) > _MOST_PAIRS:
        raise bad_request(f"metadata has {len(pairs)} pairs; at most {_MOST_PAIRS} are allowed.", "metadata")
    for key, value in pairs.items():
        if len(key) > _LONGEST_KEY:
            raise bad_request(
                f"metadata has a key of {len(key)} characters; at most {_LONGEST_KEY} are allowed.",
                "metadata",
            )
        where = f"metadata.{key}"
        if not isinstance(value, str):
            raise bad_request(f"{where} is a {type(value).__name__}; it must be a text.", where)
        if len(value) > _LONGEST_VALUE:
            raise bad_request(
                f"{where} has {len(value)} characters; at most {_LONGEST_VALUE} are allowed.", where
            )
    return pairs


def has_metadata(metadata: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether every wanted pair is there."""
    return all(metadata.get(key) == value for key, value in wanted.items())
