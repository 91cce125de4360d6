"""Bodies as JSON: what a request may hold (an integer beyond 64 bits in a schema), an answer can show again.

Must not know what the values mean. Only for values of a request's; all others fit orjson.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import orjson


def encode_body(value: Any, default: Callable[[Any], Any] | None = None) -> bytes:
    """`value` as compact JSON; orjson's errors for what is no JSON at all."""
    try:
        return orjson.dumps(value, default=default)
    except TypeError as error:
        if "64-bit" not in str(error):
            raise
    return json.dumps(value, default=default, ensure_ascii=False, separators=(",", ":")).encode()
