"""The times that clients see: as the engine planned them, never earlier."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import httpx
import pytest

from app.openai.choice import ChoiceRun
from tests.harness.live_server import LiveServer

pytestmark = pytest.mark.e2e

# By the formulas of the polynomial model: a prefill of 1,000 tokens, and the mean of 99 decode passes.
TTFT_MS = 32.11
MEAN_ITL_MS = 5.956


class Ends:
    """Keeps every run that ended."""

    def __init__(self) -> None:
        self.runs: list[ChoiceRun] = []

    def on_request_start(self, run: ChoiceRun) -> None: ...

    def on_request_end(self, run: ChoiceRun) -> None:
        self.runs.append(run)


def body(first_id: int = 1) -> dict[str, Any]:
    return {
        "prompt": list(range(first_id, first_id + 1000)),
        "max_tokens": 100,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def arrivals_s(client: httpx.Client, ask: dict[str, Any]) -> tuple[float, list[float]]:
    """When the request was sent, and when each token came."""
    times: list[float] = []
    sent_s = time.monotonic()
    with client.stream("POST", "/v1/completions", json=ask) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {") and json.loads(line[6:])["choices"]:
                times.append(time.monotonic())
    return sent_s, times


def test_a_lone_request_has_the_modelled_times_and_nothing_comes_early() -> None:
    ends = Ends()
    with LiveServer(block_size=16) as server, httpx.Client(base_url=server.url) as client:
        server.call(lambda: server.state.observers.append(ends))
        arrivals_s(client, body(5000))
        sent_s, times = arrivals_s(client, body())
    run = ends.runs[1]
    assert run.admitted_ms is not None
    assert run.first_token_ms is not None
    assert run.last_token_ms is not None
    assert run.first_token_ms - run.admitted_ms == pytest.approx(TTFT_MS, abs=0.01)
    assert (run.last_token_ms - run.first_token_ms) / 99 == pytest.approx(MEAN_ITL_MS, abs=0.001)
    assert len(times) == 100
    seen_ms = [(at_s - sent_s) * 1000 for at_s in times]
    planned_ms = run.last_token_ms - run.admitted_ms
    assert seen_ms[0] >= TTFT_MS - 0.02
    assert seen_ms[-1] >= planned_ms - 0.02
    # Generous: only a chain of sleeps instead of a plan would be so late.
    assert seen_ms[-1] <= planned_ms + 400


def test_requests_at_once_slow_one_another_down() -> None:
    ends = Ends()
    with LiveServer(block_size=16) as server, httpx.Client(base_url=server.url) as client:
        server.call(lambda: server.state.observers.append(ends))
        threads = [
            threading.Thread(target=arrivals_s, args=(client, body(index * 10_000))) for index in range(7)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    itl_ms = [
        (run.last_token_ms - run.first_token_ms) / 99
        for run in ends.runs
        if run.last_token_ms is not None and run.first_token_ms is not None
    ]
    assert len(itl_ms) == 7
    assert all(value > MEAN_ITL_MS for value in itl_ms)
