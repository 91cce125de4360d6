"""What a pass costs: the `PerfModel` protocol and the models that need no data files (engine.md section
5).
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple, Protocol


class PassWork(NamedTuple):
    """The work of one pass, as a timing model sees it. Lengths in tokens; integer means as the reference
    takes them.
    """

    prefill_batch: int
    prefill_mean_isl: int
    prefill_mean_prefix: int
    decode_batch: int
    active_kv_tokens: int
    mean_context_tokens: int
    total_kv_tokens: int
    running_requests: int


class PerfModel(Protocol):
    """Milliseconds before any speed-up; called only for the part that has work."""

    def prefill_ms(self, work: PassWork) -> float: ...

    def decode_ms(self, work: PassWork) -> float: ...


class PolynomialModel:
    """The default: quadratic in new prompt tokens, quadratic in KV use for decode."""

    def prefill_ms(self, work: PassWork) -> float:
        tokens = work.prefill_batch * (work.prefill_mean_isl - work.prefill_mean_prefix)
        if tokens <= 0:
            return 0.0
        return 4.209989e-07 * tokens * tokens + 1.518344e-02 * tokens + 16.50142

    def decode_ms(self, work: PassWork) -> float:
        use = min(1.0, work.active_kv_tokens / work.total_kv_tokens)
        return max(1.0, -25.74 * use * use + 54.01 * use + 5.74)


class FixedModel:
    """The same time for every pass that has the work."""

    def __init__(self, prefill_ms: float, decode_ms: float) -> None:
        self._prefill_ms = prefill_ms
        self._decode_ms = decode_ms

    def prefill_ms(self, work: PassWork) -> float:
        return self._prefill_ms

    def decode_ms(self, work: PassWork) -> float:
        return self._decode_ms


class ConstantArgs(NamedTuple):
    """What users of other simulators set; times in ms. The load factor stretches both under a full batch."""

    time_to_first_token_ms: float = 0.0
    time_to_first_token_std_dev_ms: float = 0.0
    inter_token_latency_ms: float = 0.0
    inter_token_latency_std_dev_ms: float = 0.0
    prefill_time_per_token_ms: float = 0.0
    time_factor_under_load: float = 1.0


class ConstantModel:
    """TTFT and ITL with a seeded normal deviation, cut at 70 % and 130 % of the mean.

    `max_num_seqs` requests running stretch both by `time_factor_under_load`, one by nothing, linear between.
    """

    def __init__(self, args: ConstantArgs, rng: Random, max_num_seqs: int) -> None:
        self._args = args
        self._rng = rng
        self._max_num_seqs = max_num_seqs

    def prefill_ms(self, work: PassWork) -> float:
        args = self._args
        tokens = max(0, work.prefill_batch * (work.prefill_mean_isl - work.prefill_mean_prefix))
        first_token_ms = self._draw(args.time_to_first_token_ms, args.time_to_first_token_std_dev_ms)
        return (first_token_ms + tokens * args.prefill_time_per_token_ms) * self._load(work)

    def decode_ms(self, work: PassWork) -> float:
        args = self._args
        drawn = self._draw(args.inter_token_latency_ms, args.inter_token_latency_std_dev_ms)
        return drawn * self._load(work)

    def _draw(self, mean_ms: float, std_dev_ms: float) -> float:
        if not std_dev_ms:
            return mean_ms
        return min(1.3 * mean_ms, max(0.7 * mean_ms, self._rng.gauss(mean_ms, std_dev_ms)))

    def _load(self, work: PassWork) -> float:
        others = max(0, work.running_requests - 1) / max(1, self._max_num_seqs - 1)
        return 1.0 + (self._args.time_factor_under_load - 1.0) * min(1.0, others)
