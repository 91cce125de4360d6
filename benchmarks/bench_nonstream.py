"""(b) Unstreamed small requests from 64 clients, at full speed-up. Reference: the floor's prepared body."""

from __future__ import annotations

from benchmarks.report import Figure, compared
from benchmarks.rounds import (
    PLAIN_TOKENS,
    Options,
    chat_body,
    closed_window,
    in_turn,
    median,
    recorded_floor_flags,
    say,
)
from benchmarks.servers import FULL_SPEED, floor, ours

CLIENTS = 64
TARGET = 0.4


def run(options: Options) -> list[Figure]:
    body = chat_body(PLAIN_TOKENS, stream=False)
    with (
        recorded_floor_flags() as flags,
        floor(*flags) as reference,
        ours(FULL_SPEED, *options.flags) as server,
    ):
        say(f"nonstream: {CLIENTS} clients, {options.rounds} rounds of {options.window_s:g} s each")
        mine, floors = in_turn(
            options.rounds,
            lambda: closed_window(server, body, CLIENTS, options.window_s),
            lambda: closed_window(reference, body, CLIENTS, options.window_s),
        )
    cost_us = median([1e6 * sample.cpu_s / sample.load.responses for sample in mine])
    return [
        compared(
            "nonstream",
            f"{CLIENTS} clients",
            "req/s",
            [sample.responses_per_s for sample in mine],
            [sample.responses_per_s for sample in floors],
            wanted="ratio>=",
            target=TARGET,
        ),
        compared(
            "nonstream",
            f"{CLIENTS} clients, requests per second of server CPU",
            "req/s",
            [sample.load.responses / sample.cpu_s for sample in mine],
            [sample.load.responses / sample.cpu_s for sample in floors],
            wanted="ratio>=",
            target=TARGET,
            note=f"{cost_us:.0f} us a request",
        ),
        compared(
            "nonstream",
            f"{CLIENTS} clients, p99",
            "ms",
            [sample.load.latency_p99_ms or 0.0 for sample in mine],
            [sample.load.latency_p99_ms or 0.0 for sample in floors],
        ),
    ]
