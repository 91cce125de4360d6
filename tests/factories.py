"""Keyword factories with small defaults (6 blocks of 4), for every test of the core."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from mocker_core.engine.core import EngineCore
from mocker_core.engine_args import MockEngineArgs
from mocker_core.request import DirectRequest, RequestId
from mocker_core.sched.output import EnginePassResult

_SMALL: dict[str, Any] = {"num_gpu_blocks": 6, "block_size": 4}


def make_args(**values: Any) -> MockEngineArgs:
    """Engine arguments as JSON would give them; what is not named is small or the default."""
    return MockEngineArgs.from_mapping(_SMALL | values)


def make_core(**values: Any) -> EngineCore:
    """A core with its KV events on; engine arguments as for `make_args`, `dp_rank` for itself."""
    dp_rank = values.pop("dp_rank", 0)
    return EngineCore(make_args(**{"enable_kv_events": True, **values}), dp_rank)


def make_request(
    request_id: str = "r",
    *,
    tokens: Sequence[int] | None = None,
    prompt: int = 4,
    start: int | None = None,
    output: int = 2,
    **fields: Any,
) -> DirectRequest:
    """A request of `prompt` tokens, which are its own unless `tokens` or their first id `start` is given."""
    if tokens is None:
        first = _own_tokens(request_id) if start is None else start
        tokens = tuple(range(first, first + prompt))
    return DirectRequest(request_id=RequestId(request_id), tokens=tokens, max_output_tokens=output, **fields)


def run_passes(core: EngineCore, now_ms: float = 0.0, *, most: int = 1000) -> list[EnginePassResult]:
    """Passes one after the other until the core is empty; fails if it does not get there."""
    results: list[EnginePassResult] = []
    for _ in itertools.repeat(None, most):
        if core.is_empty():
            return results
        results.append(core.execute_pass(now_ms))
        now_ms = results[-1].end_ms
    raise AssertionError(f"the core still has work after {most} passes")


def _own_tokens(request_id: str) -> int:
    """Far apart for different ids, equal for equal ones."""
    return 1000 * (1 + int.from_bytes(request_id.encode()[-3:], "little") % 1_000_000)
