"""`mocker replay`: run a trace through the engine on a virtual clock and report what the requests saw.

Owns the flags, the files and the terminal; the replay itself is `mocker_core.engine.offline`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from app.replay.html import write_report
from app.replay.output import ProgressBar, render_table, write_json, write_rows
from app.replay.timeline import LoadRecorder
from app.timeline.replay_trace import ReplayTrace
from mocker_core.engine.offline import OfflineReplay, PassObserver, ReplayWorker
from mocker_core.engine.offline_disagg import DisaggregatedReplay
from mocker_core.engine.replay_report import summarize
from mocker_core.engine_args import MockEngineArgs, WorkerType
from mocker_core.errors import ArgumentError
from mocker_core.sched.output import EnginePassResult
from mocker_core.trace import TraceRow, parse_trace


def main(argv: Sequence[str]) -> int:
    """Run one replay; the exit status. Raises ArgumentError for a caller's mistake."""
    options = _parser().parse_args(argv)
    trace = _read_trace(options.trace)
    started_s = time.perf_counter()
    load = LoadRecorder() if options.html is not None else None
    with ExitStack() as stack:
        progress = stack.enter_context(ProgressBar(len(trace), sys.stderr))
        observers: list[PassObserver] = [_counting(progress)]
        if load is not None:
            observers.append(load.on_pass)
        timeline = None if options.trace_out is None else stack.enter_context(ReplayTrace(options.trace_out))
        if timeline is not None:
            observers.append(timeline.on_pass)
        replay = _build(options, trace, _all_of(observers))
        if timeline is not None:
            timeline.follow(replay.rows)
        replay.run()
    disaggregated = isinstance(replay, DisaggregatedReplay)
    report = summarize(replay.rows, replay.gaps, replay.duration_ms, time.perf_counter() - started_s)
    if options.report is not None:
        write_json(options.report, report)
    if options.per_request is not None:
        write_rows(options.per_request, (row.as_dict(disaggregated=disaggregated) for row in replay.rows))
    if load is not None:
        write_report(options.html, Path(options.trace).name, report, replay.rows, replay.gaps, load.pools)
    sys.stdout.write(render_table(report))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mocker replay",
        description="Replay a Mooncake-style JSONL trace through the simulated engine in virtual time.",
        epilog="Engine arguments are JSON (or a file with it) keyed by the engine's names, for example "
        '\'{"block_size": 16, "num_gpu_blocks": 1024}\'; docs/configuration.md lists them.',
    )
    parser.add_argument(
        "trace", metavar="TRACE", help="JSONL file: timestamp, input_length, output_length, hash_ids"
    )
    parser.add_argument(
        "--engine-args", metavar="JSON_OR_FILE", help="arguments of aggregated workers (default {})"
    )
    parser.add_argument(
        "--trace-block-size", metavar="N", type=int, default=512, help="tokens a hash id stands for"
    )
    parser.add_argument(
        "--concurrency", metavar="N", type=int, help="closed loop: at most N requests in flight"
    )
    parser.add_argument(
        "--num-workers", metavar="N", type=int, default=1, help="aggregated workers, round robin"
    )
    pools = parser.add_argument_group("disaggregated prefill and decode")
    pools.add_argument(
        "--prefill-engine-args", metavar="JSON_OR_FILE", help="arguments of the prefill workers"
    )
    pools.add_argument("--decode-engine-args", metavar="JSON_OR_FILE", help="arguments of the decode workers")
    pools.add_argument("--num-prefill-workers", metavar="N", type=int, default=1)
    pools.add_argument("--num-decode-workers", metavar="N", type=int, default=1)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--report", metavar="OUT.json", type=Path, help="write the summary as one JSON object"
    )
    output.add_argument(
        "--per-request", metavar="OUT.jsonl", type=Path, help="write one JSON row per request"
    )
    output.add_argument(
        "--trace-out",
        metavar="OUT.json",
        type=Path,
        help="write a timeline for Perfetto (Chrome's trace format)",
    )
    output.add_argument(
        "--html", metavar="OUT.html", type=Path, help="write a page with charts, complete in one file"
    )
    return parser


def _build(
    options: argparse.Namespace,
    trace: list[TraceRow],
    on_pass: PassObserver,
) -> OfflineReplay:
    if options.prefill_engine_args is None and options.decode_engine_args is None:
        if options.num_prefill_workers != 1 or options.num_decode_workers != 1:
            raise ArgumentError(
                "--num-prefill-workers and --num-decode-workers are for prefill and decode pools; give "
                "--prefill-engine-args and --decode-engine-args too ({} for the defaults), or use "
                "--num-workers."
            )
        return OfflineReplay(
            trace,
            MockEngineArgs.from_mapping(_engine_args("--engine-args", options.engine_args)),
            trace_block_size=options.trace_block_size,
            concurrency=options.concurrency,
            num_workers=options.num_workers,
            on_pass=on_pass,
        )
    if options.engine_args is not None or options.num_workers != 1:
        raise ArgumentError(
            "--engine-args and --num-workers are for aggregated workers; for prefill and decode pools use "
            "--prefill-engine-args, --decode-engine-args, --num-prefill-workers and --num-decode-workers."
        )
    prefill = _engine_args("--prefill-engine-args", options.prefill_engine_args)
    decode = _engine_args("--decode-engine-args", options.decode_engine_args)
    return DisaggregatedReplay(
        trace,
        MockEngineArgs.from_mapping(prefill | {"worker_type": WorkerType.PREFILL}),
        MockEngineArgs.from_mapping(decode | {"worker_type": WorkerType.DECODE}),
        trace_block_size=options.trace_block_size,
        concurrency=options.concurrency,
        num_prefill_workers=options.num_prefill_workers,
        num_decode_workers=options.num_decode_workers,
        on_pass=on_pass,
    )


def _all_of(observers: Sequence[PassObserver]) -> PassObserver:
    def on_pass(worker: ReplayWorker, result: EnginePassResult) -> None:
        for observer in observers:
            observer(worker, result)

    return on_pass if len(observers) > 1 else observers[0]


def _counting(progress: ProgressBar) -> PassObserver:
    def on_pass(worker: ReplayWorker, result: EnginePassResult) -> None:
        if result.finished:
            progress.advance(sum(1 for facts in result.finished if facts.output_tokens or facts.rejected))

    return on_pass


def _engine_args(flag: str, text: str | None) -> dict[str, Any]:
    """JSON itself or the path of a file that holds it."""
    if text is None:
        return {}
    source = text
    if not text.lstrip().startswith("{"):
        try:
            source = Path(text).read_text(encoding="utf-8")
        except OSError as error:
            raise ArgumentError(
                f"{flag} is {text!r}, which is neither a JSON object nor a readable file ({error.strerror})."
            ) from None
    try:
        values = json.loads(source)
    except ValueError as error:
        raise ArgumentError(f"{flag} is not valid JSON: {error}.") from None
    if not isinstance(values, Mapping):
        raise ArgumentError(f"{flag} must be a JSON object, not {type(values).__name__}.")
    return dict(values)


def _read_trace(path: str) -> list[TraceRow]:
    try:
        with open(path, encoding="utf-8") as lines:
            rows = list(parse_trace(lines))
    except OSError as error:
        raise ArgumentError(f"the trace {path!r} can't be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ArgumentError(f"the trace {path!r} is not UTF-8 text; it must be JSONL.") from None
    if not rows:
        raise ArgumentError(f"the trace {path!r} has no rows; it must have one JSON object a line.")
    return rows
