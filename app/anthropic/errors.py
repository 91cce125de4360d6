"""Errors in Anthropic's envelope: the same in an answer with a status and in a stream. Pure."""

from __future__ import annotations

from typing import Any

import orjson

from app.errors import ApiError, error_body
from app.openai.answer import JSON_HEADERS
from app.stream_response import HotResponse

PATH = "/v1/messages"

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error_envelope(error: ApiError) -> dict[str, Any]:
    default = "api_error" if error.status >= 500 else "invalid_request_error"
    kind = _TYPES.get(error.status, default)
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def write_error(response: HotResponse, error: ApiError, profile: str) -> None:
    """Queue an error: with its status before anything was sent, else as the event that ends the stream."""
    body = orjson.dumps(error_envelope(error))
    if response.begun:
        response.finish(b"event: error\ndata: " + body + b"\n\n")
        return
    named = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
    response.respond(error.status, [*JSON_HEADERS, *named], body)


def is_messages_path(path: str) -> bool:
    """Whether errors under this path have Anthropic's envelope. `path`: without a root path."""
    return path == PATH or path.startswith(PATH + "/")


def body_for_path(path: str, error: ApiError, profile: str) -> bytes:
    """An error's body in the shape of the API that the path belongs to."""
    if is_messages_path(path):
        return orjson.dumps(error_envelope(error))
    return error_body(error, profile)
