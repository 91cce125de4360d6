"""Which constraint a request puts on its text: response_format, structured_outputs, guided_*. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.errors import bad_request
from app.openai.protocol import GenerationRequest

_GUIDED = ("json", "regex", "choice", "grammar")


def constraint_of(request: GenerationRequest) -> tuple[Mapping[str, Any] | None, str]:
    """(vLLM's structured_outputs object or None, the parameter that asked). Raises ApiError 400."""
    found: list[tuple[Mapping[str, Any], str]] = []
    if request.response_format is not None:
        constraint = format_constraint(request.response_format, "response_format")
        if constraint is not None:
            found.append((constraint, "response_format"))
    if request.structured_outputs is not None:
        found.append((request.structured_outputs, "structured_outputs"))
    for kind in _GUIDED:
        value = getattr(request, f"guided_{kind}")
        if value is not None:
            found.append(({kind: value}, f"guided_{kind}"))
    if len(found) > 1:
        names = " and ".join(param for _, param in found)
        raise bad_request(f"{names} are set; only one may constrain the answer.", found[1][1])
    return found[0] if found else (None, "response_format")


def format_constraint(value: Mapping[str, Any], param: str) -> Mapping[str, Any] | None:
    """The constraint of a response_format (of Chat, or the flat one of Responses). Raises ApiError 400."""
    kind = value.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"json_object": True}
    if kind in ("grammar", "structural_tag"):
        raise bad_request(
            f"{param}.type is {kind!r}, which is not simulated; use json_schema or json_object.",
            f"{param}.type",
        )
    if kind != "json_schema":
        raise bad_request(
            f"{param}.type is {kind!r:.60}; it must be text, json_object or json_schema.", f"{param}.type"
        )
    place = f"{param}.json_schema"
    inner = value.get("json_schema")
    if inner is None and "schema" in value:
        inner, place = value, param
    if not isinstance(inner, Mapping):
        raise bad_request(f"{place} is missing; give an object with name and schema.", place)
    if not isinstance(inner.get("name"), str) or not inner["name"]:
        raise bad_request(f"{place}.name is missing; give the schema a name.", f"{place}.name")
    schema = inner.get("schema")
    if schema is None:
        return {"json_object": True}
    if not isinstance(schema, Mapping | bool):
        raise bad_request(
            f"{place}.schema is {schema!r:.60}; it must be a JSON Schema object.", f"{place}.schema"
        )
    return {"json": schema}
