"""INV-9, pass by pass: with cancellations and handoff commands between passes, core and reference agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property import strategies
from tests.property.engine_pair import Ask, EnginePair
from tests.property.profiles import examples

HANDOFF_KINDS = ["release_source", "cancel_source", "activate", "activate", "cancel_destination"]


@given(st.data())
@examples(150)
def test_random_requests_and_cancellations_agree(data: st.DataObject) -> None:
    pair = EnginePair(data.draw(strategies.engine_args()))
    for step in range(data.draw(st.integers(1, 30))):
        match data.draw(st.sampled_from(["submit", "submit", "pass", "pass", "pass", "cancel"])):
            case "submit":
                pair.submit(data.draw(strategies.asks(f"r{step}")))
            case "pass":
                pair.run_pass()
            case "cancel":
                if live := pair.live_ids():
                    pair.cancel(data.draw(st.sampled_from(live)))
    pair.drain()


@pytest.mark.parametrize("worker_type", ["prefill", "decode"])
@given(st.data())
@examples(120)
def test_random_handoffs_with_local_work_agree(worker_type: str, data: st.DataObject) -> None:
    pair = EnginePair(data.draw(strategies.engine_args(worker_type=worker_type)))
    opening = "prefill" if worker_type == "prefill" else "reserve"
    kinds = [opening, opening, "pass", "pass", "pass", "command", "command", "retry", "submit", "cancel"]
    handoffs: list[str] = []
    for step in range(data.draw(st.integers(1, 35))):
        grants = data.draw(st.booleans())
        match data.draw(st.sampled_from(kinds)):
            case "prefill":
                pair.handoff_prefill(f"h{step}", data.draw(strategies.asks(f"r{step}")))
                handoffs.append(f"h{step}")
            case "reserve":
                pair.reserve(f"h{step}", data.draw(strategies.asks(f"r{step}")), grants=grants)
                handoffs.append(f"h{step}")
            case "pass":
                pair.run_pass()
            case "retry":
                pair.retry()
            case "submit":
                pair.submit(data.draw(strategies.asks(f"r{step}")))
            case "command" if handoffs:
                kind = data.draw(st.sampled_from(HANDOFF_KINDS))
                pair.handoff_command(kind, data.draw(st.sampled_from(handoffs)), grants=grants)
            case "cancel":
                if live := pair.live_ids():
                    pair.cancel(data.draw(st.sampled_from(live)))
    pair.drain()


def test_fifo_preemption_of_steady_decodes_for_a_chunk_passes_the_next_request_over() -> None:
    # Found by search: rare enough that random examples seldom meet it.
    pair = EnginePair(
        {
            "num_gpu_blocks": 6,
            "block_size": 4,
            "max_num_batched_tokens": 5,
            "preemption_mode": "fifo",
            "timing_model": {"type": "fixed", "prefill_ms": 1, "decode_ms": 1},
        }
    )
    pair.submit(Ask("r0", (1, 2, 22, 23, 24, 25, 26, 27), (28, 29, 30)))
    pair.submit(Ask("r1", (31, 32, 33, 34), (35, 36, 37, 38)))
    pair.submit(Ask("r3", (1, 2, 3, 53, 54, 55), (56, 57, 58)))
    for _ in range(4):
        pair.run_pass()
    pair.submit(Ask("r2", (41, 42), (43, 44)))
    pair.drain()
