"""Hot routes: plain ASGI endpoints inside the FastAPI app, with the facts that its OpenAPI document needs.

To add one: a `HotRoute` in its package's api_router, listed in the factory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.openai.serving import Start


@dataclass(frozen=True, slots=True, kw_only=True)
class HotRoute:
    """One POST route. The types are msgspec Structs; `chunk` is what a stream's records hold."""

    path: str
    name: str
    summary: str
    tag: str
    start: Start
    request: type[Any]
    response: type[Any]
    chunk: type[Any] | None = None
    errors: tuple[int, ...] = (400, 401, 404, 405, 413, 429, 500, 503)
