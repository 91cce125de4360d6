"""Where a browser ends up that opens the server's address."""

from __future__ import annotations

from app.state import AppState
from tests.harness.asgi_stream import AsgiClient
from tests.unit.app.serving_fixtures import served


def test_browser_at_the_root_is_sent_to_the_dashboard_and_a_program_gets_404() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        page = await client.get("/", headers={"accept": "text/html,*/*"})
        assert (page.status, page.headers["location"]) == (307, "dashboard")
        assert (await client.get("/", headers={"accept": "*/*"})).status == 404

    served(test)
