"""Requests made from the OpenAPI document: no 5xx, no status, type or body that the document does not know.

MOCKER_SCHEMATHESIS_CASES sets how many each route gets at most (default 3; 50 makes 2,000 in all).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from app.openapi.doc import PATH
from tests.harness.live_server import LiveServer

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.filterwarnings("default")]

CASES = int(os.environ.get("MOCKER_SCHEMATHESIS_CASES", "3"))
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
# They never end, put the engine to sleep, or change how long everything else takes.
LEFT_OUT = ("/admin/events/", "/sleep", "/wake_up", "PATCH /admin/config")


def operations() -> list[str]:
    found = json.loads(PATH.read_text(encoding="utf-8"))["paths"]
    names = [f"{method.upper()} {path}" for path, methods in found.items() for method in methods]
    return [name for name in names if not name.endswith(LEFT_OUT) and "/admin/events/" not in name]


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with LiveServer(
        speedup_ratio=1e6, block_size=16, max_model_len=256, wire_profile="openai", output_length_max=32
    ) as live:
        yield live


@pytest.fixture(scope="module")
def api(server: LiveServer) -> Any:
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


@pytest.mark.parametrize("name", operations())
def test_answers_are_what_the_document_says(api: Any, name: str) -> None:
    method, path = name.split()

    @given(api[path][method].as_strategy())
    @settings(
        max_examples=CASES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def run(case: Any) -> None:
        case.validate_response(case.call(timeout=60), checks=CHECKS)

    run()


def test_nothing_is_left_of_all_these_requests(server: LiveServer) -> None:
    figures = httpx.get(f"{server.url}/admin/metrics").json()
    assert figures["requests"]["live"] == figures["requests"]["server_load"] == 0
    assert httpx.get(f"{server.url}/health").status_code == 200
