from __future__ import annotations

from app import __version__
from app.ops.metrics_json import add_section
from app.state import AppState
from mocker_core.metrics import MockerMetrics
from tests.harness.asgi_stream import AsgiClient
from tests.unit.app.serving_fixtures import chat, served

CHAT = "/v1/chat/completions"


def test_the_metrics_name_every_field_of_every_rank() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        await client.post(CHAT, chat(max_tokens=5, stream=True))
        add_section(state, "mine", lambda state: {"ranks": state.engine.args.dp_size})
        got = (await client.get("/admin/metrics?ids=true")).json()
        assert [rank["dp_rank"] for rank in got["ranks"]] == [0, 1]
        assert all(set(MockerMetrics._fields) <= rank.keys() for rank in got["ranks"])
        assert got["state"] == "ready"
        assert got["requests"]["ids"] == []
        assert got["lateness_ms"]["count"] == got["lateness_ms"]["buckets"]["+Inf"] >= 1
        assert got["process"]["rss_bytes"] > 0
        assert got["mine"] == {"ranks": 2}

    served(test, data_parallel_size=2)


def test_the_load_counts_requests_in_flight() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        opened = client.open("POST", CHAT, chat(max_tokens=50_000, ignore_eos=True, stream=True))
        await opened.wait_for_bodies(1)
        assert (await client.get("/load")).json() == {"server_load": 1}
        opened.hang_up()
        await opened.finished()
        assert (await client.get("/load")).json() == {"server_load": 0}

    served(test, speedup_ratio=1.0)


def test_version_and_server_info_hide_secrets() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        assert (await client.get("/version")).json() == {"version": __version__}
        info = await client.get("/server_info")
        assert info.json()["mocker_config"]["api_key"] == "***"
        assert "secret-key" not in info.body.decode()

    served(test, api_key=("secret-key",))


def test_models_are_vllms_cards() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        listed = (await client.get("/v1/models")).json()
        assert [card["id"] for card in listed["data"]] == ["org/one", "two"]
        card = (await client.get("/v1/models/org/one")).json()
        assert card == listed["data"][0]
        assert card["root"] == "weights"
        assert card["parent"] is None
        assert card["max_model_len"] == 4096
        assert card["permission"][0]["object"] == "model_permission"
        state.models.add_adapter("lora", "/path")
        adapter = (await client.get("/v1/models/lora")).json()
        assert (adapter["parent"], adapter["root"]) == ("org/one", "/path")
        got = await client.post(CHAT, chat(max_tokens=1, model="lora"))
        assert got.json()["model"] == "lora"
        state.models.remove_adapter("lora")
        assert (await client.get("/v1/models/lora")).status == 404

    served(test, model="weights", served_model_name=("org/one", "two"), max_model_len=4096)
