from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from mocker_core.engine_args import EngineType, MockEngineArgs, ReasoningArgs, WorkerType
from mocker_core.errors import ArgumentError

DEFAULTS = MockEngineArgs()
NAMES = [item.name for item in dataclasses.fields(MockEngineArgs)]
INF = float("inf")
NAN = float("nan")

# name: (wrong values, what the sentence says is allowed)
WRONG: dict[str, tuple[list[Any], str]] = {
    "engine_type": (["tgi", 3, ""], "it must be one of vllm, trtllm"),
    "num_gpu_blocks": ([0, -1, 1.5, "8", True], "it must be a whole number >= 1"),
    "block_size": ([1, 0, 2.0, "64", True], "it must be a whole number >= 2"),
    "max_model_len": ([0, -5, 1.5, "1", True], "it must be a whole number >= 1 or null"),
    "max_num_seqs": ([0, -5, 1.5, "1", True], "it must be a whole number >= 1 or null"),
    "max_num_batched_tokens": ([0, -5, 1.5, "1", True], "it must be a whole number >= 1 or null"),
    "enable_prefix_caching": (["true", 1, 0], "it must be true or false"),
    "enable_chunked_prefill": (["true", 1, 0], "it must be true or false"),
    "speedup_ratio": ([-0.1, INF, NAN, "1", True], "it must be a finite number >= 0"),
    "decode_speedup_ratio": ([-0.1, INF, NAN, "1", True], "it must be a finite number >= 0"),
    "preemption_mode": (["newest", 1], "it must be one of lifo, fifo"),
    "worker_type": (["router", 1], "it must be one of aggregated, prefill, decode"),
    "dp_size": ([0, -1, 1.0, "1", True], "it must be a whole number >= 1"),
    "startup_time": ([-1, INF, NAN, "1", True], "it must be a finite number >= 0"),
    "timing_model": ([3, {}, {"type": 3}, []], "it must be an object with a type"),
    "kv_bytes_per_token": ([0, -1, 1.5, "1", True], "it must be a whole number >= 1 or null"),
    "kv_transfer_bandwidth": ([-1, INF, NAN, "1", True], "it must be a finite number >= 0 or null"),
    "kv_transfer_timing_mode": (["none", 1], "it must be one of full_prompt, destination_missing"),
    "num_g2_blocks": ([-1, 1.5, "1", True], "it must be a whole number >= 0 or null"),
    "num_g3_blocks": ([-1, 1.5, "1", True], "it must be a whole number >= 0 or null"),
    "bandwidth_g1_to_g2_gbps": ([INF, NAN, "1", True], "it must be a finite number"),
    "bandwidth_g2_to_g1_gbps": ([INF, NAN, "1", True], "it must be a finite number"),
    "bandwidth_g2_to_g3_gbps": ([INF, NAN, "1", True], "it must be a finite number"),
    "bandwidth_g3_to_g2_gbps": ([INF, NAN, "1", True], "it must be a finite number"),
    "handoff_session_timeout_ms": ([-1, INF, NAN, "1", True], "it must be a finite number >= 0"),
    "max_catch_up_ms": ([-1, INF, NAN, "1", True], "it must be a finite number >= 0"),
    "enable_kv_events": (["true", 1, 0], "it must be true or false"),
    "seed": ([1.5, "1", True], "it must be any whole number"),
    "reasoning": ([3, "on", True, []], "it must be an object"),
}
CASES = [(name, value, bound) for name, (values, bound) in WRONG.items() for value in values]


def test_every_argument_has_wrong_values_here() -> None:
    assert WRONG.keys() == set(NAMES)


@pytest.mark.parametrize(("name", "value", "bound"), CASES, ids=[f"{n}-{v!r}" for n, v, _ in CASES])
def test_wrong_value_is_refused_naming_argument_value_and_range(name: str, value: Any, bound: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        MockEngineArgs.from_mapping({name: value})
    sentence = str(caught.value)
    assert sentence.startswith(name)
    assert repr(value) in sentence
    assert bound in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize("name", NAMES)
def test_null_means_the_default(name: str) -> None:
    assert MockEngineArgs.from_mapping({name: None}) == DEFAULTS


def test_defaults_are_those_of_the_table() -> None:
    assert (DEFAULTS.num_gpu_blocks, DEFAULTS.block_size) == (16384, 64)
    assert (DEFAULTS.max_num_seqs, DEFAULTS.max_num_batched_tokens) == (256, 8192)
    assert (DEFAULTS.engine_type, DEFAULTS.worker_type) == (EngineType.VLLM, WorkerType.AGGREGATED)
    assert DEFAULTS.max_model_len is None
    assert DEFAULTS.enable_prefix_caching and DEFAULTS.enable_chunked_prefill
    assert dict(DEFAULTS.timing_model) == {"type": "polynomial"}
    assert (DEFAULTS.kv_transfer_bandwidth, DEFAULTS.handoff_session_timeout_ms) == (64.0, 300_000)


@pytest.mark.parametrize(
    ("name", "near"),
    [("block_sise", "block_size"), ("num_gpu_block", "num_gpu_blocks"), ("speedup_ration", "speedup_ratio")],
)
def test_unknown_name_is_refused_with_the_nearest_one(name: str, near: str) -> None:
    with pytest.raises(ArgumentError, match=f"{name} is not an engine argument. Did you mean {near}"):
        MockEngineArgs.from_mapping({name: 1})


def test_name_near_to_nothing_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ArgumentError, match=r"Known arguments: .*block_size.*worker_type"):
        MockEngineArgs.from_mapping({"zzz": 1})


def test_sglang_is_refused_as_not_simulated_yet() -> None:
    with pytest.raises(
        ArgumentError, match="engine_type is 'sglang'; this version simulates vllm and trtllm"
    ):
        MockEngineArgs.from_mapping({"engine_type": "sglang"})


def test_least_and_unusual_right_values_are_taken() -> None:
    args = MockEngineArgs.from_mapping(
        {
            "num_gpu_blocks": 1,
            "block_size": 2,
            "speedup_ratio": 0,
            "kv_transfer_bandwidth": 0,
            "num_g2_blocks": 0,
            "bandwidth_g1_to_g2_gbps": -1,
            "seed": -3,
            "worker_type": "decode",
        }
    )
    assert args.worker_type is WorkerType.DECODE
    assert args.controls_enabled
    assert not args.offload_enabled


def test_timing_model_may_be_named_by_a_string() -> None:
    assert dict(MockEngineArgs.from_mapping({"timing_model": "fixed"}).timing_model) == {"type": "fixed"}


def test_reasoning_is_built_from_an_object() -> None:
    args = MockEngineArgs.from_mapping({"reasoning": {"start_thinking_token_id": 7, "thinking_ratio": 0.25}})
    assert args.reasoning == ReasoningArgs(7, None, 0.25)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"ratio": 1}, "reasoning.ratio is unknown; known names: end_thinking"),
        ({"thinking_ratio": 1.5}, "reasoning.thinking_ratio is 1.5; it must be within 0 and 1"),
        ({"thinking_ratio": "half"}, "reasoning.thinking_ratio is 'half'; it must be within 0 and 1"),
        ({"thinking_ratio": NAN}, "reasoning.thinking_ratio is nan; it must be within 0 and 1"),
        ({"start_thinking_token_id": "x"}, "reasoning.start_thinking_token_id is 'x'"),
        ({"end_thinking_token_id": -1}, "reasoning.end_thinking_token_id is -1"),
    ],
)
def test_wrong_reasoning_is_refused_by_its_full_name(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ArgumentError, match=sentence):
        MockEngineArgs.from_mapping({"reasoning": values})


def test_offload_needs_a_host_tier_and_the_size_of_a_token() -> None:
    assert not MockEngineArgs(num_g2_blocks=4).offload_enabled
    assert not MockEngineArgs(kv_bytes_per_token=4).offload_enabled
    assert MockEngineArgs(num_g2_blocks=4, kv_bytes_per_token=4).offload_enabled


def test_handoff_capacity_is_max_num_seqs_or_else_the_pool() -> None:
    assert MockEngineArgs(max_num_seqs=7).handoff_capacity == 7
    assert MockEngineArgs(max_num_seqs=None, num_gpu_blocks=9).handoff_capacity == 9


def test_arguments_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULTS.block_size = 3  # type: ignore[misc]  # the very thing that must fail


def test_huge_json_integer_is_taken_or_refused_but_never_crashes() -> None:
    with pytest.raises(ArgumentError, match="speedup_ratio"):
        MockEngineArgs.from_mapping({"speedup_ratio": json.loads("1" + "0" * 400)})
