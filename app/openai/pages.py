"""Lists in pages, as OpenAI's list routes give them, and such routes' part of the OpenAPI document. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import Query

from app.errors import bad_request

After = Annotated[str | None, Query(description="Id of the last one of the page before.")]
Limit = Annotated[int, Query(ge=1, le=100)]
Order = Annotated[Literal["asc", "desc"], Query(description="By time.")]


def page_of(
    items: Sequence[dict[str, Any]], after: str | None = None, limit: int = 1, order: str = "asc"
) -> dict[str, Any]:
    """At most `limit` items after the one with the id `after`. Raises ApiError 400 for an unknown id.

    `items` come oldest first; `order` "desc" turns them round.
    """
    items = items if order == "asc" else items[::-1]
    start = 0
    if after is not None:
        place = next((at for at, item in enumerate(items) if item["id"] == after), None)
        if place is None:
            raise bad_request(
                f"after is {after!r:.100}, which is not in the list; give the last_id of a page.",
                "after",
            )
        start = place + 1
    data = list(items[start : start + limit])
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else "",
        "last_id": data[-1]["id"] if data else "",
        "has_more": start + limit < len(items),
    }


def answer_of(kind: type[Any], example: Any) -> dict[int | str, dict[str, Any]]:
    """FastAPI's `responses` for an answer of a Struct that a hot route brings into the document."""
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {
        200: {
            "description": "The answer",
            "content": {"application/json": {"schema": schema, "example": example}},
        }
    }
