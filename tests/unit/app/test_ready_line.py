"""The one line that says what is served and where to look."""

from __future__ import annotations

import socket

import pytest

from app.serve import ready_line, run
from app.settings import ServeSettings
from mocker_core.errors import ArgumentError


def test_ready_line_names_the_models_the_engine_and_the_dashboard() -> None:
    settings = ServeSettings(
        served_model_name=("a", "b"), num_gpu_blocks_override=10, block_size=16, speedup_ratio=2.0
    )
    assert ready_line(settings, 8123) == (
        "Serving a, b: a simulated vllm engine (aggregated, 10 KV blocks of 16 tokens, speed-up 2), with "
        "no API key. Watch it at http://127.0.0.1:8123/dashboard"
    )


def test_ready_line_keeps_a_named_host_and_says_https_with_tls() -> None:
    settings = ServeSettings(host="mock.example", ssl_keyfile="k", ssl_certfile="c", api_key=("a", "b"))
    assert ready_line(settings, 1).endswith("with 2 API keys. Watch it at https://mock.example:1/dashboard")


def test_port_in_use_is_told_with_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ArgumentError, match=f"port {port}: .*; stop what uses it, or choose"):
            run(ServeSettings(host="127.0.0.1", port=port))
