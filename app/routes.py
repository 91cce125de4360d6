"""Hot routes: plain ASGI endpoints inside the FastAPI app, with the facts that its OpenAPI document needs.

To add one: a `HotRoute` in its package's api_router, listed in the factory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.openai.answer import send_error
from app.openai.protocol import ErrorResponse
from app.openai.serving import ErrorWriter, Start


@dataclass(frozen=True, slots=True, kw_only=True)
class HotRoute:
    """One POST route. The types are msgspec Structs; `chunk` is what a stream's records hold.

    `stream_ends`: the record after the last chunk, "" for none. `error`, `write_error`: the API's shape of
    errors. `more`: types that other routes of the package refer to in the OpenAPI document.
    """

    path: str
    name: str
    summary: str
    tag: str
    start: Start
    request: type[Any]
    response: type[Any]
    chunk: type[Any] | None = None
    stream_ends: str = "[DONE]"
    error: type[Any] = ErrorResponse
    write_error: ErrorWriter = send_error
    request_example: Any = None
    response_example: Any = None
    more: tuple[type[Any], ...] = ()
    errors: tuple[int, ...] = (400, 401, 404, 405, 413, 429, 500, 503)
