"""Values of the plain engine: its arguments with the timing formulas, and one request with its state."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from .plain_pool import PlainBlock


@dataclass(frozen=True, slots=True)
class PlainArgs:
    """Engine arguments under their public names; only those that the core needs."""

    engine_type: str = "vllm"
    num_gpu_blocks: int = 16384
    block_size: int = 64
    max_model_len: int | None = None
    max_num_seqs: int | None = 256
    max_num_batched_tokens: int | None = 8192
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    speedup_ratio: float = 1.0
    decode_speedup_ratio: float = 1.0
    preemption_mode: str = "lifo"
    worker_type: str = "aggregated"
    kv_bytes_per_token: float | None = None
    kv_transfer_bandwidth: float | None = 64.0
    kv_transfer_timing_mode: str = "full_prompt"
    fixed_prefill_ms: float | None = None  # both set: the fixed timing model
    fixed_decode_ms: float | None = None

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> PlainArgs:
        """Unknown names are an error; None means the default."""
        unknown = set(values) - {f.name for f in fields(cls)}
        if unknown:
            raise ValueError(f"the plain engine does not know {sorted(unknown)}")
        return cls(**{name: value for name, value in values.items() if value is not None})

    def transfer_delay_ms(self, tokens: int) -> float:
        if not self.kv_bytes_per_token or not self.kv_transfer_bandwidth:
            return 0.0
        return tokens * self.kv_bytes_per_token / (self.kv_transfer_bandwidth * 1e9) * 1000.0

    def prefill_ms(self, batch: int, isl: int, prefix: int) -> float:
        if batch == 0:
            return 0.0
        if self.fixed_prefill_ms is not None:
            return self.fixed_prefill_ms
        t = batch * (isl - prefix)
        return 4.209989e-07 * t * t + 1.518344e-02 * t + 16.50142 if t > 0 else 0.0

    def decode_ms(self, batch: int, active_kv_tokens: int) -> float:
        if batch == 0:
            return 0.0
        if self.fixed_decode_ms is not None:
            return self.fixed_decode_ms
        u = min(1.0, active_kv_tokens / (self.num_gpu_blocks * self.block_size))
        return max(1.0, -25.74 * u * u + 54.01 * u + 5.74)


@dataclass(slots=True, eq=False)
class PlainRequest:
    """One request. `content(start, end)` names its tokens [start, end): equal names mean equal tokens."""

    request_id: Hashable
    prompt_tokens: int
    max_output_tokens: int
    content: Callable[[int, int], Hashable]
    priority: int = 0
    # What follows is the engine's own state.
    local: bool = True
    handoff_id: Hashable = None
    generated: int = 0
    computed: int = 0
    blocks: list[PlainBlock] = field(default_factory=list)
    cached_blocks: int = 0  # how many leading blocks are cached
    identities: list[int] = field(default_factory=list)
    preemptions: int = 0
    order: int = 0
    kv_in_place: bool = False
    held: bool = False
    transferable_tokens: int = 0
    given_tokens: int = 0  # what the current pass gave it, to be undone by a preemption
    given_prompt: tuple[int, int] | None = None

    @classmethod
    def from_tokens(
        cls,
        request_id: Hashable,
        tokens: Sequence[int],
        max_output_tokens: int,
        output_token_ids: Sequence[int] | None = None,
        priority: int = 0,
    ) -> PlainRequest:
        """A request by token ids; without planned output its output is unique to the request."""
        if output_token_ids is not None:
            max_output_tokens = len(output_token_ids)
            everything: tuple[Hashable, ...] = (*tokens, *output_token_ids)
        else:
            everything = (*tokens, *((request_id, i) for i in range(max_output_tokens)))
        return cls(
            request_id,
            len(tokens),
            max_output_tokens,
            lambda start, end: everything[start:end],
            priority,
        )

    @property
    def length(self) -> int:
        return self.prompt_tokens + self.generated
