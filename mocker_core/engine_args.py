"""`MockEngineArgs`: every engine argument of engine.md section 1, validated once, frozen.

A wrong value is refused in one sentence that names the argument, the value and the allowed range.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeGuard

from mocker_core.errors import ArgumentError


class EngineType(StrEnum):
    VLLM = "vllm"
    TRTLLM = "trtllm"


class WorkerType(StrEnum):
    AGGREGATED = "aggregated"
    PREFILL = "prefill"
    DECODE = "decode"


class PreemptionMode(StrEnum):
    LIFO = "lifo"
    FIFO = "fifo"


class KvTransferTimingMode(StrEnum):
    FULL_PROMPT = "full_prompt"
    DESTINATION_MISSING = "destination_missing"


@dataclass(frozen=True, slots=True)
class ReasoningArgs:
    """How much of an answer is thinking, and the token ids around it."""

    start_thinking_token_id: int | None = None
    end_thinking_token_id: int | None = None
    thinking_ratio: float = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class MockEngineArgs:
    """Arguments of one engine. Lengths in tokens or blocks, times in ms, bandwidths in GB/s (1e9 B/s)."""

    engine_type: EngineType = EngineType.VLLM
    num_gpu_blocks: int = 16384
    block_size: int = 64
    max_model_len: int | None = None
    max_num_seqs: int | None = 256
    max_num_batched_tokens: int | None = 8192
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    speedup_ratio: float = 1.0
    decode_speedup_ratio: float = 1.0
    preemption_mode: PreemptionMode = PreemptionMode.LIFO
    worker_type: WorkerType = WorkerType.AGGREGATED
    dp_size: int = 1
    startup_time: float = 0.0
    timing_model: Mapping[str, object] = field(default_factory=lambda: {"type": "polynomial"})
    kv_bytes_per_token: int | None = None
    kv_transfer_bandwidth: float | None = 64.0
    kv_transfer_timing_mode: KvTransferTimingMode = KvTransferTimingMode.FULL_PROMPT
    num_g2_blocks: int | None = None
    num_g3_blocks: int | None = None
    bandwidth_g1_to_g2_gbps: float = 14.0
    bandwidth_g2_to_g1_gbps: float = 14.0
    bandwidth_g2_to_g3_gbps: float = 7.0
    bandwidth_g3_to_g2_gbps: float = 7.0
    handoff_session_timeout_ms: float = 300_000.0
    reasoning: ReasoningArgs | None = None
    max_catch_up_ms: float = 1000.0
    enable_kv_events: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, enum in _ENUMS.items():
            object.__setattr__(self, name, _enum(name, enum, getattr(self, name)))
        for name, lowest in _INTS.items():
            _check_int(name, getattr(self, name), lowest, optional=name in _OPTIONAL)
        for name in _FLOATS:
            _check_float(name, getattr(self, name), optional=name in _OPTIONAL)
        for name in ("enable_prefix_caching", "enable_chunked_prefill", "enable_kv_events"):
            if not isinstance(getattr(self, name), bool):
                raise ArgumentError(f"{name} is {getattr(self, name)!r}; it must be true or false.")
        if not isinstance(self.timing_model, Mapping) or not isinstance(self.timing_model.get("type"), str):
            raise ArgumentError(
                f"timing_model is {self.timing_model!r}; it must be an object with a type, "
                'for example {"type": "polynomial"}.'
            )

    @property
    def controls_enabled(self) -> bool:
        """Handoff commands count only on a prefill or decode worker."""
        return self.worker_type is not WorkerType.AGGREGATED

    @property
    def offload_enabled(self) -> bool:
        return bool(self.num_g2_blocks) and self.kv_bytes_per_token is not None

    @property
    def handoff_capacity(self) -> int:
        return self.max_num_seqs if self.max_num_seqs is not None else self.num_gpu_blocks

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> MockEngineArgs:
        """Build from JSON-like values keyed by section 1's names; null means the default.

        Raises ArgumentError for an unknown name (with the nearest right one) or a wrong value.
        """
        known = {item.name for item in dataclasses.fields(cls)}
        kept: dict[str, Any] = {}
        for name, value in values.items():
            if name not in known:
                near = get_close_matches(name, known, n=1)
                hint = (
                    f" Did you mean {near[0]}?" if near else f" Known arguments: {', '.join(sorted(known))}."
                )
                raise ArgumentError(f"{name} is not an engine argument.{hint}")
            if value is not None:
                kept[name] = value
        if isinstance(kept.get("timing_model"), str):
            kept["timing_model"] = {"type": kept["timing_model"]}
        if "reasoning" in kept and not isinstance(kept["reasoning"], ReasoningArgs):
            kept["reasoning"] = _reasoning(kept["reasoning"])
        return cls(**kept)

    def with_changes(self, values: Mapping[str, Any]) -> MockEngineArgs:
        """The same arguments with some changed; the caller knows the names. Raises ArgumentError."""
        return dataclasses.replace(self, **values)


_ENUMS: dict[str, type[StrEnum]] = {
    "engine_type": EngineType,
    "preemption_mode": PreemptionMode,
    "worker_type": WorkerType,
    "kv_transfer_timing_mode": KvTransferTimingMode,
}
_INTS = {
    "num_gpu_blocks": 1,
    "block_size": 2,
    "max_model_len": 1,
    "max_num_seqs": 1,
    "max_num_batched_tokens": 1,
    "dp_size": 1,
    "kv_bytes_per_token": 1,
    "num_g2_blocks": 0,
    "num_g3_blocks": 0,
    "seed": None,
}
_FLOATS = (
    "speedup_ratio",
    "decode_speedup_ratio",
    "startup_time",
    "kv_transfer_bandwidth",
    "handoff_session_timeout_ms",
    "max_catch_up_ms",
    "bandwidth_g1_to_g2_gbps",
    "bandwidth_g2_to_g1_gbps",
    "bandwidth_g2_to_g3_gbps",
    "bandwidth_g3_to_g2_gbps",
)
_MAY_BE_NEGATIVE = frozenset(name for name in _FLOATS if name.startswith("bandwidth_"))
_OPTIONAL = frozenset(
    {
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "kv_bytes_per_token",
        "kv_transfer_bandwidth",
        "num_g2_blocks",
        "num_g3_blocks",
    }
)


def _enum(name: str, enum: type[StrEnum], value: object) -> StrEnum:
    if value == "sglang" and enum is EngineType:
        raise ArgumentError("engine_type is 'sglang'; this version simulates vllm and trtllm only.")
    try:
        return enum(str(value))
    except ValueError:
        allowed = ", ".join(member.value for member in enum)
        raise ArgumentError(f"{name} is {value!r}; it must be one of {allowed}.") from None


def _check_int(name: str, value: object, lowest: int | None, *, optional: bool) -> None:
    if value is None and optional:
        return
    bound = "any whole number" if lowest is None else f"a whole number >= {lowest}"
    if isinstance(value, bool) or not isinstance(value, int) or (lowest is not None and value < lowest):
        raise ArgumentError(f"{name} is {value!r}; it must be {bound}{' or null' if optional else ''}.")


def _check_float(name: str, value: object, *, optional: bool) -> None:
    if value is None and optional:
        return
    if not _is_finite(value) or not (name in _MAY_BE_NEGATIVE or value >= 0):
        bound = "a finite number" if name in _MAY_BE_NEGATIVE else "a finite number >= 0"
        raise ArgumentError(f"{name} is {value!r}; it must be {bound}{' or null' if optional else ''}.")


def _is_finite(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer that no float can hold
        return False


def _reasoning(values: object) -> ReasoningArgs:
    if not isinstance(values, Mapping):
        raise ArgumentError(f"reasoning is {values!r}; it must be an object, for example {{}}, or null.")
    known = {item.name for item in dataclasses.fields(ReasoningArgs)}
    for name in values:
        if name not in known:
            raise ArgumentError(f"reasoning.{name} is unknown; known names: {', '.join(sorted(known))}.")
    args = ReasoningArgs(**{name: value for name, value in values.items() if value is not None})
    for name in ("start_thinking_token_id", "end_thinking_token_id"):
        _check_int(f"reasoning.{name}", getattr(args, name), 0, optional=True)
    if not _is_finite(args.thinking_ratio) or not 0.0 <= args.thinking_ratio <= 1.0:
        raise ArgumentError(
            f"reasoning.thinking_ratio is {args.thinking_ratio!r}; it must be within 0 and 1."
        )
    return args
