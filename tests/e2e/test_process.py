"""The server as a process: its start, its end, and what its log says."""

from __future__ import annotations

import signal
import threading
import time

import httpx
import pytest

from tests.harness.asgi_stream import parse_records
from tests.harness.live_server import LiveServer, ServerProcess

pytestmark = pytest.mark.e2e


def test_the_command_serves_and_ends_cleanly_on_a_signal() -> None:
    with ServerProcess(["--uvicorn-log-level", "warning"]) as server:
        answer = httpx.post(
            f"{server.url}/v1/completions", json={"prompt": "x", "max_tokens": 1}, timeout=30.0
        )
        assert answer.status_code == 200
        assert server.stop() in (0, -signal.SIGTERM)


def test_the_end_of_the_server_ends_open_streams_with_an_error_record() -> None:
    body = {"prompt": "x", "max_tokens": 100_000, "ignore_eos": True, "stream": True}
    received: list[bytes] = []
    begun = threading.Event()

    def read() -> None:
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=30.0) as answer:
            for part in answer.iter_raw():
                received.append(part)
                begun.set()

    with LiveServer(grace_s=0.0) as server:
        reader = threading.Thread(target=read)
        reader.start()
        assert begun.wait(20)
        server.stop()
        reader.join(20)
    records = parse_records(b"".join(received))
    assert records[-1] == "[DONE]"
    assert "stopped" in records[-2]["error"]["message"]


def test_a_second_signal_does_not_wait_for_open_streams() -> None:
    body = {"prompt": "x", "max_tokens": 100_000, "ignore_eos": True, "stream": True}
    with (
        LiveServer(grace_s=3600.0) as server,
        httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=30.0) as answer,
    ):
        parts = answer.iter_raw()
        received = [next(parts)]
        server.begin_stop()
        server.signal_again()
        received += parts
        server.stop()
    records = parse_records(b"".join(received))
    assert records[-1] == "[DONE]"
    assert "stopped" in records[-2]["error"]["message"]


def test_two_signals_end_the_process_without_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    body = {"prompt": "x", "max_tokens": 100_000, "ignore_eos": True, "stream": True}
    with (
        ServerProcess(["--uvicorn-log-level", "warning"]) as server,
        httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=30.0) as answer,
    ):
        parts = answer.iter_raw()
        next(parts)
        server.process.send_signal(signal.SIGINT)
        with pytest.raises(httpx.TransportError):
            while True:
                httpx.get(f"{server.url}/health", timeout=5.0)
        server.process.send_signal(signal.SIGINT)
        for _ in parts:
            pass
        assert server.process.wait(20) == 130
    assert "Traceback" not in capfd.readouterr().err


def test_the_start_up_time_is_seen_as_503_until_it_is_over() -> None:
    with LiveServer(startup_time=0.5) as server, httpx.Client(base_url=server.url) as client:
        assert client.get("/health").status_code == 503
        refused = client.post("/v1/completions", json={"prompt": "x"})
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        deadline_s = time.monotonic() + 20
        while client.get("/health").status_code != 200:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        assert client.post("/v1/completions", json={"prompt": "x", "max_tokens": 1}).status_code == 200


def test_a_silent_stream_gets_comments_that_the_records_are_not_harmed_by() -> None:
    body = {"prompt": list(range(3000)), "max_tokens": 10, "ignore_eos": True, "stream": True}
    settings = {"speedup_ratio": 0.1, "ping_seconds": 0.05, "block_size": 16}
    with LiveServer(**settings) as server:
        raw = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60.0).content
    assert raw.startswith(b": ping\n\n")
    records = parse_records(raw)
    assert len(records) == 11
