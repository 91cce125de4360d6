"""(e) Start-up to a 200 on /health, and resident memory: idle, with 2,000 open streams, and after them.

Reference: the floor with as many streams.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.bench_pacing import PACE_FLAG, POOL_FLAG, STEP_MS
from benchmarks.load import LoadProcess, LoadSpec
from benchmarks.report import Figure, compared
from benchmarks.rounds import Options, chat_body, say, sleep_until
from benchmarks.servers import ServerProcess, floor, ours

STREAMS = 2000
START_UP_TARGET_S = 1.0
IDLE_TARGET_MB = 90.0
STREAM_TARGET_KB = 60.0
_OPEN_S = 4.0
_HOLD_S = 4.0
_AFTER_S = 3.0


@dataclass(frozen=True, slots=True)
class Footprint:
    started_s: float
    start_cpu_s: float
    idle_bytes: int
    open_bytes: int
    after_bytes: int

    @property
    def kb_per_stream(self) -> float:
        return (self.open_bytes - self.idle_bytes) / STREAMS / 1e3


def run(options: Options) -> list[Figure]:
    say(f"startup: {options.rounds} rounds of {STREAMS} streams")
    with ours(PACE_FLAG):
        pass  # compiles the modules that a first start compiles
    mine: list[Footprint] = []
    floors: list[Footprint] = []
    for _ in range(options.rounds):
        mine.append(_footprint(ours(PACE_FLAG, POOL_FLAG, *options.flags)))
        floors.append(_footprint(floor(f"--step-ms={STEP_MS}")))

    def figure(
        what: str, unit: str, value: Callable[[Footprint], float], target: float | None = None
    ) -> Figure:
        return compared(
            "startup",
            what,
            unit,
            [value(footprint) for footprint in mine],
            [value(footprint) for footprint in floors],
            wanted="value<=" if target is not None else "",
            target=target,
        )

    return [
        figure("start to 200 on /health", "s", lambda one: one.started_s, START_UP_TARGET_S),
        figure("CPU of the start", "s", lambda one: one.start_cpu_s),
        figure("idle memory", "MB", lambda one: one.idle_bytes / 1e6, IDLE_TARGET_MB),
        figure(f"memory with {STREAMS:,} streams", "MB", lambda one: one.open_bytes / 1e6),
        figure("memory per open stream", "KB", lambda one: one.kb_per_stream, STREAM_TARGET_KB),
        figure("memory after them", "MB", lambda one: one.after_bytes / 1e6),
    ]


def _footprint(process: ServerProcess) -> Footprint:
    with process as server:
        start_cpu_s, idle_bytes = server.cpu_s(), server.rss_bytes()
        start_at_s = time.monotonic() + 0.7
        to_at_s = start_at_s + _OPEN_S + _HOLD_S
        load = LoadProcess(
            LoadSpec(
                port=server.port,
                body=chat_body(4000, stream=True),
                mode="held",
                clients=STREAMS,
                start_at_s=start_at_s,
                spread_s=_OPEN_S,
                from_at_s=to_at_s - 1.0,
                to_at_s=to_at_s,
            )
        )
        sleep_until(to_at_s - 0.5)
        open_bytes = server.rss_bytes()
        result = load.result()
        if result.open_streams != STREAMS or result.errors:
            raise RuntimeError(
                f"Only {result.open_streams} of {STREAMS} streams opened: {result.first_error}"
            )
        time.sleep(_AFTER_S)
        return Footprint(server.started_s, start_cpu_s, idle_bytes, open_bytes, server.rss_bytes())
