from __future__ import annotations

from typing import Any

import pytest

from app.state import AppState
from tests.harness.asgi_stream import AsgiClient
from tests.unit.app.serving_fixtures import chat, served

PATH = "/admin/config"


def test_the_config_shows_settings_without_secrets_and_what_is_live() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        got = (await client.get(PATH, {"Authorization": "Bearer secret"})).json()
        assert got["settings"]["api_key"] == "***"
        assert got["live"]["speedup_ratio"] == 1e6
        assert got["live"]["faults"] == {"error": 0.0, "disconnect": 0.0, "stall": 0.0, "error_status": 500}
        assert (await client.get(PATH)).status == 401
        assert (await client.request("PATCH", PATH, {})).status == 401

    served(test, api_key=("secret",))


def test_a_change_of_prices_holds_for_every_rank_from_its_next_pass() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        changes = {"speedup_ratio": 1.0, "timing_model": {"type": "fixed", "prefill_ms": 7, "decode_ms": 3}}
        got = await client.request("PATCH", PATH, changes)
        assert got.status == 200, got.body
        assert got.json()["live"]["timing_model"] == changes["timing_model"]
        times: list[tuple[float, float]] = []

        class Watch:
            def on_request_start(self, run: Any) -> None: ...

            def on_request_end(self, run: Any) -> None:
                times.append((run.first_token_ms - run.admitted_ms, run.last_token_ms - run.first_token_ms))

        state.observers.append(Watch())
        for rank in ("0", "1"):
            body = chat(max_tokens=5, ignore_eos=True)
            assert (await client.post(PATH_CHAT, body, {"X-Data-Parallel-Rank": rank})).status == 200
        # At least: when the machine is late, the loop begins a pass later than planned.
        assert all(first >= 6.999 and rest >= 11.999 for first, rest in times)
        assert (await client.request("PATCH", PATH, {"timing_model": "polynomial"})).status == 200
        assert state.engine.args.speedup_ratio == 1.0

    served(test, data_parallel_size=2)


PATH_CHAT = "/v1/chat/completions"


def test_fault_rates_change_live_and_alone() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        await client.request("PATCH", PATH, {"faults": {"error_status": 529}})
        assert (await client.post(PATH_CHAT, chat(max_tokens=1))).status == 200
        got = await client.request("PATCH", PATH, {"faults": {"error": 1}})
        assert got.json()["live"]["faults"]["error_status"] == 529
        assert (await client.post(PATH_CHAT, chat())).status == 529
        await client.request("PATCH", PATH, {"faults": {"error": 0}})
        assert (await client.post(PATH_CHAT, chat(max_tokens=1))).status == 200

    served(test)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"model": "x"}, "model"),
        ({"speedup_ratio": -1}, "speedup_ratio"),
        ({"speedup_ratio": None}, "speedup_ratio"),
        ({"speedup_ratio": "fast"}, "speedup_ratio"),
        ({"timing_model": {"type": "odd"}}, "timing_model"),
        ({"timing_model": {"type": "interpolated", "path": "none.npz"}}, "timing_model"),
        ({"timing_model": 3}, "timing_model"),
        ({"faults": {"error": 3}}, "faults"),
        ({"faults": 3}, "faults"),
    ],
    ids=str,
)
def test_a_wrong_change_is_400_and_changes_nothing(changes: dict[str, Any], param: str) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        before = (await client.get(PATH)).json()
        got = await client.request("PATCH", PATH, {"faults": {"stall": 0.5}, **changes})
        assert got.status == 400, got.body
        assert got.json()["error"]["param"] == param
        assert (await client.get(PATH)).json() == before
        for body in (b"", b"[]", b"{", b"3"):
            assert (await client.request("PATCH", PATH, body)).status == 400

    served(test)
