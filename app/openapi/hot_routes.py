"""Adds the hot routes to FastAPI's OpenAPI document: paths, request and answer schemas, error answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from app.openai.protocol import ErrorResponse
from app.routes import HotRoute

_REF = "#/components/schemas/"
_ERRORS = {
    400: "The request is wrong; `param` says where",
    401: "No valid API key",
    403: "Not allowed",
    404: "No such model or object",
    405: "Wrong method",
    409: "In conflict with what is going on",
    413: "The body is larger than --max-body-mb",
    429: "Too many requests wait; see Retry-After",
    500: "Internal error",
    503: "The engine is starting or dead",
}


_MORE_ERRORS = {
    ("delete", "/v1/models/{model}"): (403,),
    ("post", "/v1/unload_lora_adapter"): (404,),
    ("post", "/v1/load_lora_adapter"): (404,),
}


def add_hot_routes(document: dict[str, Any], routes: Sequence[HotRoute]) -> dict[str, Any]:
    """The same document with the hot routes in it, and every operation with its error answers."""
    types = {ErrorResponse}
    for route in routes:
        types |= {route.request, route.response, route.error, *route.more}
        types |= {route.chunk} if route.chunk is not None else set()
    ordered = sorted(types, key=lambda item: item.__name__)
    _, components = msgspec.json.schema_components(ordered, ref_template=_REF + "{name}")
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(components)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    paths = document.setdefault("paths", {})
    for route in routes:
        paths.setdefault(route.path, {})["post"] = _operation(route)
    for path, operations in paths.items():
        for method, operation in operations.items():
            _add_errors(method, path, operation)
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    document["paths"] = dict(sorted(paths.items()))
    return document


def _operation(route: HotRoute) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": _schema(route.response, route.response_example)}
    if route.chunk is not None:
        end = f", then `{route.stream_ends}`" if route.stream_ends else ""
        content["text/event-stream"] = {
            "schema": {
                "type": "string",
                "description": f"With stream: `data:` records, each a {route.chunk.__name__}{end}.",
            }
        }
    responses: dict[str, Any] = {"200": {"description": "The answer", "content": content}}
    for status in route.errors:
        responses[str(status)] = _error(status, route.error)
    return {
        "tags": [route.tag],
        "summary": route.summary,
        "operationId": route.name,
        "requestBody": {
            "required": True,
            "content": {"application/json": _schema(route.request, route.request_example)},
        },
        "responses": responses,
    }


def _add_errors(method: str, path: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    takes_input = "422" in responses or "requestBody" in operation or operation.get("parameters")
    responses.pop("422", None)
    wanted = [500]
    if takes_input:
        wanted.append(400)
    if path.startswith(("/v1", "/admin")):
        wanted.append(401)
    if "{" in path:
        wanted.append(404)
    if path in ("/health", "/ping"):
        wanted.append(503)
    if path.startswith("/admin/handoff") and method == "post":
        wanted.append(409)
    wanted += _MORE_ERRORS.get((method, path), ())
    for status in wanted:
        responses.setdefault(str(status), _error(status))
    operation["responses"] = dict(sorted(responses.items()))


def _schema(kind: type[Any], example: Any = None) -> dict[str, Any]:
    media: dict[str, Any] = {"schema": {"$ref": _REF + kind.__name__}}
    if example is not None:
        media["example"] = example
    return media


def _error(status: int, kind: type[Any] = ErrorResponse) -> dict[str, Any]:
    return {"description": _ERRORS[status], "content": {"application/json": _schema(kind)}}
