"""The committed OpenAPI document says what the routes do."""

from __future__ import annotations

import json
from typing import Any

from app.factory import hot_routes
from app.openapi_doc import PATH, document_text


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
