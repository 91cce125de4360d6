"""Record from a real server of this project, then replay: bytes, timing, errors; no key is kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.content.recording import Recording, RecordingError, Recordings, request_key
from app.state import AppState
from tests.harness.asgi_stream import AsgiClient
from tests.harness.live_server import LiveServer
from tests.unit.app.serving_fixtures import chat, served

PATH = "/v1/chat/completions"


@pytest.mark.e2e
def test_what_was_recorded_is_replayed_byte_for_byte(tmp_path: Path) -> None:
    bodies: list[tuple[str, dict[str, Any]]] = [
        (PATH, chat("one", stream=True, max_tokens=8)),
        (PATH, chat("two", max_tokens=4)),
        (PATH, chat("three", n=0)),
        ("/v1/completions", {"prompt": "x", "max_tokens": 3, "stream": True}),
    ]
    headers = {"Authorization": "Bearer secret-key"}
    with (
        LiveServer(speedup_ratio=1e6, api_key=("secret-key",)) as real,
        LiveServer(content="record", content_path=str(tmp_path), upstream=f"{real.url}/v1") as recorder,
        httpx.Client(base_url=recorder.url, headers=headers) as http,
    ):
        recorded = [http.post(path, json=body) for path, body in bodies]
        assert http.get("/v1/models").status_code == 200
    assert [got.status_code for got in recorded] == [200, 200, 400, 200]
    text = (tmp_path / "recordings.jsonl").read_text()
    assert "secret-key" not in text
    assert len(text.splitlines()) == 4

    async def replay(client: AsgiClient, state: AppState) -> None:
        for (path, body), was in zip(bodies, recorded, strict=True):
            got = await client.post(path, dict(reversed(body.items())), {"Origin": "http://a"})
            assert got.body == was.content
            assert got.status == was.status_code
            assert got.headers["content-type"] == was.headers["content-type"]
            assert got.headers["access-control-allow-origin"] == "*"
        missing = await client.post(PATH, chat("four"))
        assert missing.status == 404
        assert "No recording" in missing.json()["error"]["message"]

    served(replay, content="replay", content_path=str(tmp_path), speedup_ratio=0)


@pytest.mark.e2e
def test_an_upstream_that_is_not_there_is_502(tmp_path: Path) -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        got = await client.post(PATH, chat())
        assert got.status == 502
        assert "did not answer" in got.json()["error"]["message"]

    served(test, content="record", content_path=str(tmp_path), upstream="http://127.0.0.1:9")
    assert not list(tmp_path.iterdir())


def line(key: str, *chunks: tuple[float, bytes]) -> str:
    return Recording(key, PATH, {}, 200, (("content-type", "text/event-stream"),), chunks).to_line()


def test_chunks_come_at_their_times_over_the_speed(tmp_path: Path) -> None:
    body = chat("slow")
    key = request_key(PATH, json.dumps(body).encode())
    (tmp_path / "a.jsonl").write_text(line(key, (0.0, b"data: 1\n\n"), (3_600_000.0, b"data: \xff\n\n")))

    async def test(client: AsgiClient, state: AppState) -> None:
        exchange = client.open("POST", PATH, body)
        await exchange.wait_for_bodies(1)
        assert exchange.bodies == [b"data: 1\n\n"]
        exchange.hang_up()
        await exchange.finished()
        assert not exchange.complete
        whole = await client.post(PATH, body, {"X-Mocker-Replay-Speed": "1e9"})
        assert whole.body == b"data: 1\n\ndata: \xff\n\n"
        assert (await client.post(PATH, body, {"X-Mocker-Replay-Speed": "fast"})).status == 400

    served(test, content="replay", content_path=str(tmp_path), speedup_ratio=1.0)


def test_recordings_of_one_request_come_in_turn(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(line("k", (0, b"1")) + line("k", (0, b"2")))
    found = Recordings.load(tmp_path)
    assert len(found) == 2
    assert [item.chunks[0][1] for _ in range(3) if (item := found.next_for("k"))] == [b"1", b"2", b"2"]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"version": 1}', '{"version": 2, "key": "x"}'])
def test_a_wrong_line_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(line("k") + text + "\n")
    with pytest.raises(RecordingError, match=r"a\.jsonl, line 2"):
        Recordings.load(path)
