"""(c) Pacing: N streams at 20 ms between tokens, and an admission storm of 500 onto 500.

Lateness is from the engine's plan to the write to the transport, measured in the server; the reference is the
bare-ASGI step loop on the same absolute deadlines, measured the same way. The mean ITL is the client's.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.lateness_map import Lateness, LatenessMap, between
from benchmarks.load import LoadProcess, LoadResult, LoadSpec
from benchmarks.report import Figure, compared
from benchmarks.rounds import Options, chat_body, median, recorded_floor_flags, say, sleep_until
from benchmarks.servers import ServerProcess, floor, ours_measured

STEP_MS = 20.0
PACE_FLAG = "--timing-model=" + json.dumps({"type": "fixed", "prefill_ms": 0, "decode_ms": STEP_MS})
POOL_FLAG = "--num-gpu-blocks-override=1000000"
# Longer than any window: the load generator leaves first.
_TOKENS = 10_000
_OPEN_PER_S = 1000.0
_SETTLE_S = 1.5
_STORM = 500
_STORM_SPREAD_S = 0.3
_STORM_WINDOW_S = 1.0
LATENESS_TARGET = 1.5
STORM_TARGET = 2.0
ITL_TARGET = 0.002
# Targets are set for these numbers of streams.
_WITH_TARGET = (500, 1000)


@dataclass(frozen=True, slots=True)
class PacedSample:
    lateness: Lateness
    load: LoadResult
    cpu_s: float

    @property
    def p50_ms(self) -> float:
        return self.lateness.p50_ms or 0.0

    @property
    def p99_ms(self) -> float:
        return self.lateness.p99_ms or 0.0

    @property
    def cpu_us_per_token(self) -> float:
        return 1e6 * self.cpu_s / max(1, self.lateness.tokens)

    @property
    def itl_error(self) -> float:
        """How far the clients' mean gap is from the planned one, as a fraction of it."""
        return abs((self.load.mean_itl_ms or 0.0) / STEP_MS - 1.0)


def run(options: Options) -> list[Figure]:
    figures: list[Figure] = []
    with TemporaryDirectory() as folder, recorded_floor_flags() as flags:
        paced = [*flags, f"--step-ms={STEP_MS}"]

        def measure_ours(streams: int, storm: int) -> PacedSample:
            file = Path(folder, "ours")
            server = ours_measured(file, PACE_FLAG, POOL_FLAG, *options.flags)
            return _measure(server, file, streams, storm, options.window_s)

        def measure_floor(streams: int, storm: int) -> PacedSample:
            file = Path(folder, "floor")
            return _measure(floor(*paced, f"--lateness-file={file}"), file, streams, storm, options.window_s)

        for streams in options.streams:
            figures += _steady(streams, *_turns(options.rounds, measure_ours, measure_floor, streams, 0))
        figures += _storm(*_turns(options.rounds, measure_ours, measure_floor, _STORM, _STORM))
    return figures


Measure = Callable[[int, int], PacedSample]


def _turns(
    rounds: int, mine: Measure, reference: Measure, streams: int, storm: int
) -> tuple[list[PacedSample], list[PacedSample]]:
    """A B, B A, ...; each measurement has a fresh server, so that nothing is left of an overloaded one."""
    say(f"pacing: {streams} streams" + (f" and a storm of {storm}" if storm else "") + f", {rounds} rounds")
    samples: dict[Measure, list[PacedSample]] = {mine: [], reference: []}
    for index in range(rounds):
        for measure in (mine, reference) if index % 2 == 0 else (reference, mine):
            samples[measure].append(measure(streams, storm))
    return samples[mine], samples[reference]


def _measure(process: ServerProcess, file: Path, streams: int, storm: int, window_s: float) -> PacedSample:
    """Open the streams, let them settle, then count for one window; a storm starts with its window."""
    spread_s = streams / _OPEN_PER_S
    with process as server:
        lateness = LatenessMap(file)
        start_at_s = time.monotonic() + 0.7
        from_at_s = start_at_s + spread_s + _SETTLE_S
        to_at_s = from_at_s + (_STORM_WINDOW_S if storm else window_s)
        load = LoadProcess(
            LoadSpec(
                port=server.port,
                body=chat_body(_TOKENS, stream=True),
                mode="held",
                clients=streams,
                start_at_s=start_at_s,
                spread_s=spread_s,
                from_at_s=from_at_s,
                to_at_s=to_at_s,
                storm_clients=storm,
                storm_at_s=from_at_s,
                storm_spread_s=_STORM_SPREAD_S,
            )
        )
        sleep_until(from_at_s)
        cpu_s, before = server.cpu_s(), lateness.read()
        sleep_until(to_at_s)
        cpu_s, after = server.cpu_s() - cpu_s, lateness.read()
        result = load.result()
    if result.errors:
        raise RuntimeError(f"{result.errors} streams failed; the first: {result.first_error}")
    return PacedSample(between(before, after), result, cpu_s)


def _steady(streams: int, mine: list[PacedSample], floors: list[PacedSample]) -> list[Figure]:
    targets = streams in _WITH_TARGET
    what = f"{streams} streams"
    open_streams = min(sample.load.open_streams for sample in mine)
    return [
        _compare(f"{what}, p50 lateness", "ms", mine, floors, lambda sample: sample.p50_ms),
        _compare(
            f"{what}, p99 lateness",
            "ms",
            mine,
            floors,
            lambda sample: sample.p99_ms,
            wanted="ratio<=" if targets else "",
            target=LATENESS_TARGET if targets else None,
            note="" if open_streams == streams else f"only {open_streams} streams were open",
        ),
        Figure(
            bench="pacing",
            what=f"{what}, mean ITL off by",
            unit="",
            ours=median([sample.itl_error for sample in mine]),
            reference=median([sample.itl_error for sample in floors]),
            wanted="value<=" if targets else "",
            target=ITL_TARGET if targets else None,
        ),
        Figure(
            bench="pacing",
            what=f"{what}, early tokens",
            unit="",
            ours=float(sum(sample.lateness.early_tokens for sample in mine)),
            reference=float(sum(sample.lateness.early_tokens for sample in floors)),
            wanted="value==",
            target=0.0,
            note=f"of {sum(sample.lateness.tokens for sample in mine):,}",
        ),
        _compare(f"{what}, CPU per token", "us", mine, floors, lambda sample: sample.cpu_us_per_token),
    ]


def _storm(mine: list[PacedSample], floors: list[PacedSample]) -> list[Figure]:
    what = f"{_STORM} more in {_STORM_SPREAD_S:g} s onto {_STORM}"
    return [
        _compare(f"{what}, p50 lateness", "ms", mine, floors, lambda sample: sample.p50_ms),
        _compare(
            f"{what}, p99 lateness",
            "ms",
            mine,
            floors,
            lambda sample: sample.p99_ms,
            wanted="ratio<=",
            target=STORM_TARGET,
            note=f"within {_STORM_WINDOW_S:g} s of the storm's start",
        ),
    ]


def _compare(
    what: str,
    unit: str,
    mine: list[PacedSample],
    floors: list[PacedSample],
    value: Callable[[PacedSample], float],
    *,
    wanted: str = "",
    target: float | None = None,
    note: str = "",
) -> Figure:
    return compared(
        "pacing",
        what,
        unit,
        [value(sample) for sample in mine],
        [value(sample) for sample in floors],
        wanted=wanted,
        target=target,
        note=note,
    )
