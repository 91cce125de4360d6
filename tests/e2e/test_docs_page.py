"""GET /docs in a headless browser: it lists every route and asks no other host."""

from __future__ import annotations

import json

import pytest

from app.openapi.doc import PATH
from tests.harness.browser import Browser
from tests.harness.live_server import LiveServer

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


def test_the_page_lists_every_route_and_shows_what_is_opened() -> None:
    paths = json.loads(PATH.read_text(encoding="utf-8"))["paths"]
    with LiveServer() as live, Browser() as browser:
        browser.open(f"{live.url}/docs#post/v1/chat/completions")
        browser.wait("document.querySelectorAll('details').length > 0")
        count = browser.run("document.querySelectorAll('details').length")
        assert count == sum(len(methods) for methods in paths.values())
        browser.wait("document.querySelector('details[open] pre') !== null")
        shown = browser.run("document.querySelector('details[open]').textContent")
        assert "curl -X POST" in shown
        assert "max_completion_tokens" in shown
        browser.run(
            "(() => { const find = document.getElementById('find'); find.value = 'embed'; "
            "find.dispatchEvent(new Event('input')); })()"
        )
        assert browser.run("document.querySelectorAll('details:not([hidden])').length") == 1
        assert browser.problems == []
        assert all(url.startswith(live.url) for url in browser.requested)
