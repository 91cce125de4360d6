"""The committed OpenAPI document says what the routes do."""

from __future__ import annotations

import asyncio
import json
import re
from functools import cache
from typing import Any

import jsonschema
import pytest

from app.factory import hot_routes
from app.openapi.doc import PATH, document_text
from tests.harness.asgi_stream import serving
from tests.unit.app.serving_fixtures import make_app


@cache
def document() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(document_text())
    return loaded


def test_the_committed_document_is_current() -> None:
    assert PATH.read_text(encoding="utf-8") == document_text(), "run `make openapi`"


def test_hot_routes_are_complete_in_the_document() -> None:
    paths = document()["paths"]
    for route in hot_routes():
        operation = paths[route.path]["post"]
        assert operation["requestBody"]["content"]["application/json"]["schema"]
        assert operation["responses"]["200"]["content"]["application/json"]["schema"]
        assert {"400", "401", "404", "413", "429", "500", "503"} <= operation["responses"].keys()


def test_fastapis_422_is_nowhere() -> None:
    text = document_text()
    assert '"422"' not in text
    assert "HTTPValidationError" not in text


def test_every_reference_has_its_schema() -> None:
    found = document()
    schemas = found["components"]["schemas"]

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if "$ref" in node:
                assert node["$ref"].rpartition("/")[2] in schemas
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(found)


def test_every_operation_has_a_summary_a_tag_and_error_answers() -> None:
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            assert operation["summary"], (method, path)
            assert operation["tags"], (method, path)
            assert "500" in operation["responses"], (method, path)


OPERATIONS = [
    (method, path, operation)
    for path, operations in document()["paths"].items()
    for method, operation in operations.items()
]
IDS = [f"{method.upper()} {path}" for method, path, _ in OPERATIONS]


def media_of(holder: dict[str, Any]) -> dict[str, Any]:
    content = holder.get("content", {})
    return next((media for kind, media in content.items() if kind != "text/event-stream"), {})


def example_of(media: dict[str, Any]) -> Any:
    if "example" in media:
        return media["example"]
    many = media.get("examples", media.get("schema", {}).get("examples"))
    if isinstance(many, dict):
        return next(iter(many.values()))["value"]
    return many[0] if many else None


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=IDS)
def test_examples_are_there_and_fit_their_schemas(method: str, path: str, operation: Any) -> None:
    found = document()
    holders = [operation["requestBody"]] if "requestBody" in operation else []
    holders += [
        operation["responses"][status] for status in ("200", "202") if status in operation["responses"]
    ]
    for holder in holders:
        media = media_of(holder)
        example = example_of(media)
        assert example is not None or holder is not operation.get("requestBody")
        if example is not None:
            schema = {**media.get("schema", {}), "components": found["components"]}
            jsonschema.Draft202012Validator(schema).validate(example)


def test_request_examples_are_accepted() -> None:
    """Handoffs need another role, holds and stored answers must exist: those may be refused, but as such."""

    async def main() -> None:
        async with serving(make_app()) as client:
            for method, path, operation in OPERATIONS:
                if "requestBody" not in operation:
                    continue
                place = path.replace("{completion_id}", "x").replace("{hold_id}", "x")
                got = await client.request(
                    method.upper(), place, example_of(media_of(operation["requestBody"]))
                )
                # Handoffs and holds say 400 to whom they do not know.
                needs_more = "handoff" in path or "{" in path or path == "/v1/unload_lora_adapter"
                assert got.status in ((200, 400, 404, 409) if needs_more else (200, 202)), (
                    method,
                    path,
                    got.body,
                )

    asyncio.run(main())


def test_the_docs_page_needs_no_other_host() -> None:
    async def main() -> None:
        async with serving(make_app()) as client:
            got = await client.get("/docs")
            assert got.status == 200
            assert got.headers["content-security-policy"].startswith("default-src 'none'")
            page = got.body.decode()
            assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//""", page)
            assert "http" not in page.replace("https://json", "")
            assert (await client.get("/openapi.json")).status == 200
            assert (await client.get("/redoc")).status == 404

    asyncio.run(main())
