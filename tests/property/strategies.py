"""Hypothesis strategies: small engines under pressure, requests that share content, traces."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.property.engine_pair import Ask

STREAMS = 2
"""Contents come from few endless streams, so that prefixes are shared, even those of generated tokens."""


def stream_token(stream: int, position: int) -> int:
    return stream * 100_000 + position + 1


@st.composite
def engine_args(draw: st.DrawFn, *, worker_type: str | None = None) -> dict[str, Any]:
    args: dict[str, Any] = {
        "num_gpu_blocks": draw(st.one_of(st.integers(3, 12), st.integers(3, 30))),
        "block_size": draw(st.integers(2, 5)),
        "max_num_seqs": draw(st.sampled_from([None, 256, 1, 2, 3, 4])),
        "max_num_batched_tokens": draw(st.sampled_from([None, 8192, 1, 2, 3, 5, 8, 13, 24])),
        "max_model_len": draw(st.one_of(st.none(), st.none(), st.integers(4, 40))),
        "enable_prefix_caching": draw(st.sampled_from([True, True, True, False])),
        "enable_chunked_prefill": draw(st.sampled_from([True, True, True, False])),
        "preemption_mode": draw(st.sampled_from(["lifo", "fifo"])),
        "speedup_ratio": draw(st.sampled_from([1.0, 1.0, 4.0, 0.0])),
        "decode_speedup_ratio": draw(st.sampled_from([1.0, 1.0, 2.0, 0.0])),
        "engine_type": draw(st.sampled_from(["vllm", "vllm", "vllm", "trtllm"])),
    }
    if worker_type is not None:
        args["worker_type"] = worker_type
        if worker_type == "decode":
            args["engine_type"] = "vllm"
    return args


@st.composite
def asks(draw: st.DrawFn, request_id: str, *, longest: int = 30) -> Ask:
    """The first tokens come from a stream; the others too, or they are the request's own."""
    stream = draw(st.integers(0, STREAMS - 1))
    prompt = draw(st.one_of(st.integers(1, longest), st.sampled_from([4, 6, 8, 10, 12])))
    output = draw(st.integers(0, 14))
    length = prompt + output
    # A whole prompt from the stream with a length of full blocks makes second copies of an identity.
    shared = draw(st.one_of(st.integers(0, length), st.just(prompt), st.just(length)))
    own = 10 + int(request_id[1:])
    tokens = [stream_token(stream if i < shared else own, i) for i in range(length)]
    priority = draw(st.sampled_from([0, 0, 0, 1, -1]))
    return Ask(request_id, tuple(tokens[:prompt]), tuple(tokens[prompt:]), priority)


@st.composite
def trace_rows(draw: st.DrawFn, *, trace_block_size: int, sessions: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    step_ms = draw(st.sampled_from([0, 1, 15, 60]))
    seen: set[str] = set()
    for _ in range(draw(st.integers(1, 14))):
        row = draw(_trace_row(len(rows), trace_block_size))
        session = draw(st.sampled_from([None, "a", "b"])) if sessions else None
        if session is not None:
            row["session_id"] = session
        if session in seen:
            row["delay"] = draw(st.sampled_from([0, 3.5, 40]))
        else:
            row["timestamp"] = draw(st.integers(0, 12)) * step_ms
        if session is not None:
            seen.add(session)
        rows.append(row)
    return rows


@st.composite
def _trace_row(draw: st.DrawFn, index: int, trace_block_size: int) -> dict[str, Any]:
    length = draw(st.integers(1, 30))
    hashes = -(-length // trace_block_size)
    covered = draw(st.sampled_from([hashes, hashes, hashes, hashes // 2, 0]))
    stream = draw(st.integers(0, STREAMS - 1))
    shared = draw(st.one_of(st.integers(0, covered), st.just(covered)))
    own = 1000 * (index + 1)
    row: dict[str, Any] = {
        "input_length": length,
        "output_length": draw(st.integers(0, 14)),
        "hash_ids": [(100 * stream if i < shared else own) + i for i in range(covered)],
    }
    priority = draw(st.sampled_from([None, None, None, -1, 1, 2]))
    return row if priority is None else row | {"priority": priority}
