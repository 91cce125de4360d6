"""The examples run as they stand, against real servers."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.live_server import LiveServer
from tests.harness.pd import active_blocks, eventually

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> Callable[..., None]:
    main: Any = runpy.run_path(str(EXAMPLES / name))["main"]
    return main  # type: ignore[no-any-return]


def test_chat_stream_shows_each_token_and_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveServer(speedup_ratio=1000.0) as server:
        example("01_chat_stream.py")(f"{server.url}/v1")
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if " ms  " in line]) == 24
    assert lines[-1].endswith("24 completion tokens")


def test_prefix_cache_serves_the_second_prompt(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveServer() as server:
        example("02_prefix_cache.py")(f"{server.url}/v1")
    first, second = capsys.readouterr().out.splitlines()
    assert ", 0 of" in first
    cached, total = (int(word) for word in second.split(", ")[1].split() if word.isdigit())
    assert 0 < total - cached <= 64


def test_disagg_pair_hands_the_kv_over(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        LiveServer(disaggregation_mode="prefill", speedup_ratio=100.0) as prefill,
        LiveServer(disaggregation_mode="decode", speedup_ratio=100.0) as decode,
    ):
        example("03_disagg_pair.py")(prefill.url, decode.url)
        for server in (prefill, decode):
            eventually(lambda server=server: active_blocks(server) == 0, "blocks are left behind")  # type: ignore[misc]
    out = capsys.readouterr().out
    assert "'do_remote_prefill': True" in out
    assert "'completion_tokens': 16" in out
