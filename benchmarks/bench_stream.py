"""(a) Scheduled streaming: 64 and 256 clients x 128 tokens, one event per token, at full speed-up.

Reference: the plain-ASGI floor with the same bytes. Rates depend on who else uses the machine; CPU per token
hardly does.
"""

from __future__ import annotations

from functools import partial

from benchmarks.report import Figure, compared
from benchmarks.rounds import (
    STREAM_TOKENS,
    Options,
    Sample,
    chat_body,
    closed_window,
    in_turn,
    median,
    recorded_floor_flags,
    say,
)
from benchmarks.servers import EACH_PASS, FULL_SPEED, floor, ours

CLIENTS = (64, 256)
# (name, flag, target of the ratio). The floor always makes one write per token.
MODES = (("one token a write", EACH_PASS, 0.65), ("coalescing", FULL_SPEED, 2.0))
_BUSY_CLIENT = 0.9


def run(options: Options) -> list[Figure]:
    body = chat_body(STREAM_TOKENS, stream=True)
    figures: list[Figure] = []
    with recorded_floor_flags() as flags, floor(*flags) as reference:
        for mode, flag, target in MODES:
            with ours(flag, *options.flags) as server:
                for clients in CLIENTS:
                    what = f"{clients} clients, {mode}"
                    say(f"stream: {what}, {options.rounds} rounds of {options.window_s:g} s each")
                    samples = in_turn(
                        options.rounds,
                        partial(closed_window, server, body, clients, options.window_s),
                        partial(closed_window, reference, body, clients, options.window_s),
                    )
                    figures += _figures(what, target, *samples)
    return figures


def _figures(what: str, target: float, mine: list[Sample], floors: list[Sample]) -> list[Figure]:
    tokens_per_send = median([STREAM_TOKENS / sample.load.sends_per_response for sample in mine])
    note = f"{tokens_per_send:.2f} tokens a write"
    busy = max(sample.load.client_cpu_share for sample in (*mine, *floors))
    if busy > _BUSY_CLIENT:
        note += f"; the client was busy ({busy:.0%})"
    cost_us = median([1e6 * sample.cpu_s / sample.tokens for sample in mine])
    return [
        compared(
            "stream",
            what,
            "tokens/s",
            [sample.tokens_per_s for sample in mine],
            [sample.tokens_per_s for sample in floors],
            wanted="ratio>=",
            target=target,
            note=note,
        ),
        compared(
            "stream",
            f"{what}, per second of server CPU",
            "tokens/s",
            [sample.tokens / sample.cpu_s for sample in mine],
            [sample.tokens / sample.cpu_s for sample in floors],
            wanted="ratio>=",
            target=target,
            note=f"{cost_us:.2f} us a token",
        ),
        compared(
            "stream",
            f"{what}, p99 of a whole answer",
            "ms",
            [sample.load.latency_p99_ms or 0.0 for sample in mine],
            [sample.load.latency_p99_ms or 0.0 for sample in floors],
        ),
    ]
