"""`mocker replay --html`: the page is complete in itself and shows the replay's own numbers."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

from app.cli import main
from app.replay.html import build_report
from app.replay.svg import Area, Scale, distribution, duration, stacked
from app.replay.timeline import MAX_BINS, LoadRecorder
from mocker_core.engine.offline import OfflineReplay
from mocker_core.engine.replay_report import summarize
from mocker_core.engine_args import MockEngineArgs
from mocker_core.trace import parse_trace
from tests.shared_cases import load_bundled_case


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]


def _replay_page(tmp_path: Path, case_name: str) -> str:
    case = load_bundled_case(case_name)
    trace, page = tmp_path / "a&b.jsonl", tmp_path / "out.html"
    trace.write_text("".join(json.dumps(row) + "\n" for row in case.trace))
    flags = ["--trace-block-size", str(case.replay["trace_block_size"])]
    if case.prefill_engine_args:
        flags += ["--prefill-engine-args", json.dumps(case.prefill_engine_args)]
        flags += ["--decode-engine-args", json.dumps(case.decode_engine_args)]
    else:
        flags += ["--engine-args", json.dumps(case.engine_args)]
    assert main(["replay", str(trace), *flags, "--html", str(page)]) == 0
    return page.read_text(encoding="utf-8")


def test_page_is_complete_in_itself(tmp_path: Path) -> None:
    page = _replay_page(tmp_path, "micro_preempt")
    links = _Links()
    links.feed(page)
    assert links.found == ["data:,"]
    assert not re.search(r"https?://|@import|url\(|<script", page)
    assert "<h1>a&amp;b.jsonl</h1>" in page


def test_every_chart_is_well_formed_and_named(tmp_path: Path) -> None:
    charts = re.findall(r"<svg.*?</svg>", _replay_page(tmp_path, "micro_preempt"), re.S)
    assert len(charts) == 10
    for chart in charts:
        root = ET.fromstring(chart)
        assert root.get("aria-label")
        numbers = [value for part in root.iter() for name, value in part.items() if name in ("x", "width")]
        assert all(float(value) >= 0 for value in numbers)


def test_preemptions_of_the_case_are_told(tmp_path: Path) -> None:
    page = _replay_page(tmp_path, "micro_preempt")
    assert "3 in all, by" in page
    assert "preempted 1 times" in page or "preempted 2 times" in page


def test_disaggregated_page_has_both_pools_and_handoffs(tmp_path: Path) -> None:
    page = _replay_page(tmp_path, "micro_disagg_kvbw")
    assert "Load of the prefill workers" in page and "Load of the decode workers" in page
    assert 'class="transfer"' in page


def test_all_rejected_trace_still_gives_a_page() -> None:
    trace = list(parse_trace(['{"timestamp": 0, "input_length": 99, "output_length": 1}']))
    load = LoadRecorder()
    replay = OfflineReplay(trace, MockEngineArgs(num_gpu_blocks=2, block_size=4), on_pass=load.on_pass)
    replay.run()
    report = summarize(replay.rows, replay.gaps, replay.duration_ms, 0.0)
    assert "No samples." in build_report("t", report, replay.rows, replay.gaps, load.pools)


def test_load_integrates_to_the_requests_own_times() -> None:
    """Sum of (running x time) over the bins = the time that requests ran, however often bins were joined."""
    rows = [
        json.dumps({"timestamp": 40 * index, "input_length": 64, "output_length": 50}) for index in range(30)
    ]
    load = LoadRecorder()
    args = MockEngineArgs.from_mapping(
        {
            "num_gpu_blocks": 64,
            "block_size": 16,
            "timing_model": {"type": "fixed", "prefill_ms": 30, "decode_ms": 9},
        }
    )
    replay = OfflineReplay(list(parse_trace(rows)), args, on_pass=load.on_pass)
    replay.run()
    (pool,) = load.pools
    assert pool.bin_ms > 1 and len(pool.bins) <= MAX_BINS
    waited_and_ran_ms = sum(part.running + part.waiting for part in pool.bins)
    # What a pass admits shows at its end, so each request counts from the end of the pass that took it.
    spans_ms = sum(
        row.last_token_ms - row.arrival_ms
        for row in replay.rows
        if row.last_token_ms and row.arrival_ms is not None
    )
    assert spans_ms * 0.9 < waited_and_ran_ms <= spans_ms
    assert (
        sum(point.preemptions for point in pool.points()) == sum(row.preemptions for row in replay.rows) > 0
    )
    assert pool.end_ms == replay.duration_ms


def test_histogram_counts_every_weight() -> None:
    chart = distribution([(1.0, 3), (2.0, 5), (2.0, 2)], [("p50", 2.0)], "ms", "d")
    counted = [int(match) for match in re.findall(r": ([\d,]+) \(", chart)]
    assert sum(counted) == 10
    assert "p50: 2 ms" in chart


def test_long_tail_gets_a_logarithmic_axis() -> None:
    assert ">1 s<" in distribution([(1.0, 3), (5000.0, 1)], [], "ms", "d")


def test_stack_names_each_layers_value_at_each_step() -> None:
    chart = stacked([0.0, 500.0], 1000.0, [Area("a", "running", [1, 2]), Area("b", "waiting", [0, 7])], "s")
    assert "0.5 s: running 2, waiting 7" in chart


@pytest.mark.parametrize("log", [True, False])
def test_ticks_lie_inside_the_range(log: bool) -> None:
    scale = Scale(3.0, 4700.0, 0, 100, log)
    ticks = scale.ticks()
    assert len(ticks) >= 3 and all(3.0 <= tick <= 4700.0 for tick in ticks)


@pytest.mark.parametrize(("ms", "text"), [(0.5, "0.5 ms"), (999.0, "999 ms"), (1500.0, "1.5 s")])
def test_durations_read_as_a_person_writes_them(ms: float, text: str) -> None:
    assert duration(ms, "ms") == text


def test_page_that_cannot_be_written_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 4, "output_length": 1}\n')
    assert main(["replay", str(trace), "--html", "/dev/null/x.html"]) == 2
    assert "can't be written" in capsys.readouterr().err
