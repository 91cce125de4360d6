from __future__ import annotations

from typing import Any

import pytest

from app.state import AppState
from tests.harness.asgi_stream import AsgiClient, Exchange
from tests.unit.app.serving_fixtures import chat, served

CHAT = "/v1/chat/completions"


def call(
    method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, **settings: Any
) -> Exchange:
    async def test(client: AsgiClient, state: AppState) -> Exchange:
        return await client.request(method, path, body, headers)

    return served(test, **settings)


@pytest.mark.parametrize("path", ["/v1/models", CHAT, "/admin/metrics"])
def test_a_kept_path_needs_a_key_and_vllm_says_so_in_one_word(path: str) -> None:
    got = call("GET", path, api_key=("k",))
    assert got.status == 401
    assert got.json() == {"error": "Unauthorized"}


def test_the_openai_profile_refuses_a_key_with_the_object() -> None:
    error = call("GET", "/v1/models", api_key=("k",), wire_profile="openai").json()["error"]
    assert error["code"] == "invalid_api_key"
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ("Bearer a", 200),
        ("bearer b", 200),
        ("BEARER  b", 200),
        ("Bearer c", 401),
        ("Basic a", 401),
        ("a", 401),
        ("", 401),
    ],
)
def test_any_of_several_keys_opens_and_the_scheme_has_no_case(given: str, status: int) -> None:
    assert call("GET", "/v1/models", headers={"Authorization": given}, api_key=("a", "b")).status == status


def test_health_and_version_need_no_key() -> None:
    assert call("GET", "/health", api_key=("k",)).status == 200
    assert call("GET", "/version", api_key=("k",)).status == 200


def test_admin_may_have_a_key_of_its_own() -> None:
    keys: dict[str, Any] = {"api_key": ("user",), "admin_key": "root"}
    assert call("GET", "/admin/metrics", headers={"Authorization": "Bearer root"}, **keys).status == 200
    assert call("GET", "/admin/metrics", headers={"Authorization": "Bearer user"}, **keys).status == 401
    assert call("GET", "/v1/models", headers={"Authorization": "Bearer root"}, **keys).status == 401


def test_a_preflight_needs_no_key_and_allows_what_is_asked() -> None:
    asked = {
        "Origin": "http://page",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type",
    }
    got = call("OPTIONS", CHAT, headers=asked, api_key=("k",))
    assert got.status == 200
    assert got.headers["access-control-allow-origin"] == "*"
    assert "POST" in got.headers["access-control-allow-methods"]
    assert got.headers["access-control-allow-headers"] == "authorization, content-type"


@pytest.mark.parametrize(
    ("path", "body", "key", "status"),
    [
        (CHAT, chat(max_tokens=1, stream=True), "k", 200),
        (CHAT, chat(max_tokens=1), "k", 200),
        (CHAT, chat(max_tokens=0), "k", 400),
        (CHAT, chat(), "wrong", 401),
        ("/v1/nothing", {}, "k", 404),
    ],
)
def test_every_answer_to_a_page_has_cors_and_the_request_id(
    path: str, body: Any, key: str, status: int
) -> None:
    headers = {"Origin": "http://page", "Authorization": f"Bearer {key}", "X-Request-Id": "r1"}
    got = call("POST", path, body, headers, api_key=("k",))
    assert got.status == status
    assert got.headers["access-control-allow-origin"] == "*"
    assert got.headers["x-request-id"] == "r1"


def test_a_foreign_origin_is_not_allowed() -> None:
    mine: dict[str, Any] = {"allowed_origins": ("http://mine",), "allow_credentials": True}
    foreign = {"Origin": "http://foreign", "Access-Control-Request-Method": "POST"}
    assert call("OPTIONS", CHAT, headers=foreign, **mine).status == 400
    assert "access-control-allow-origin" not in call("GET", "/health", headers=foreign, **mine).headers
    got = call("GET", "/health", headers={"Origin": "http://mine"}, **mine)
    assert got.headers["access-control-allow-origin"] == "http://mine"
    assert got.headers["access-control-allow-credentials"] == "true"
    assert got.headers["vary"] == "Origin"


def test_request_ids_can_be_left_out() -> None:
    assert "x-request-id" not in call("GET", "/health", enable_request_id_headers=False).headers


@pytest.mark.parametrize("given", ["a" * 300, "bad\tid", ""])
def test_an_unusable_request_id_is_replaced(given: str) -> None:
    got = call("GET", "/health", headers={"X-Request-Id": given})
    assert got.headers["x-request-id"] != given
    assert len(got.headers["x-request-id"]) == 32
