"""A planned answer: token ids that are made as they are read, with length, segments and end.

Owns the values that the edge and the engine share. Must not know how content is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, overload

SegmentKind = Literal["content", "reasoning", "tool_call", "marker"]
PlanFinish = Literal["stop", "length", "tool_calls"]
# What an edge may call a plan's end instead: OpenAI's older word for a call, and a filter's.
FinishWord = Literal["stop", "length", "tool_calls", "function_call", "content_filter"]

_GROW_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens [start, end) of a plan. "marker" tokens count in usage but have no visible text.

    A "tool_call" segment's tokens are the text of its arguments; `name` is the function's, `index`
    the call's place among the answer's calls."""

    kind: SegmentKind
    start: int
    end: int
    name: str = ""
    index: int = 0


@dataclass(frozen=True, slots=True)
class ReasoningOptions:
    """The share of an answer that is reasoning, in [0, 1], and markers around it (they count, unseen)."""

    ratio: float = 0.5
    start_token_id: int | None = None
    end_token_id: int | None = None


@dataclass(frozen=True, slots=True)
class ToolCallText:
    """One planned call: the function's name and its arguments as JSON text."""

    name: str
    arguments: str


# Not frozen: one is made per request, and a frozen one costs three times as much.
@dataclass(slots=True)
class PlanRequest:
    """What a plan depends on. `max_tokens` >= 1 is already cut to what the context leaves."""

    request_id: str
    prompt_token_ids: Sequence[int]
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    seed: int | None = None
    choice_index: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    include_stop_str_in_output: bool = False
    echo_text: str | None = None
    reasoning: ReasoningOptions | None = None


class TokenSource(Protocol):
    """Appends tokens on demand."""

    def grow(self, ids: list[int], want: int) -> None:
        """Append until len(ids) >= want (more is allowed), or the source's natural end."""


class OutputPlan(Sequence[int]):
    """The token ids of one answer; len() is the planned length (>= 1), ids are made as they are read.

    plain: every token's text stands alone and is visible content, and no stop is to be watched, so
    that the hot path may splice TokenJson fragments; else read it with a PlanReader.
    finish_reason holds if the whole plan is emitted; stop_reason is the stop string or stop token id
    that ends it, if one does. seed: 64 bits, for logprobs and the like. delays_ms: what the edge adds to the
    engine's time of the first token, and to each gap after it."""

    __slots__ = (
        "_ids",
        "_length",
        "_source",
        "delays_ms",
        "finish_reason",
        "plain",
        "request",
        "seed",
        "segments",
        "stop_reason",
    )

    def __init__(
        self,
        request: PlanRequest,
        seed: int,
        segments: Sequence[Segment],
        finish_reason: PlanFinish,
        *,
        ids: list[int],
        source: TokenSource | None = None,
        plain: bool = False,
    ) -> None:
        assert segments, "a plan has at least one token"
        self.request = request
        self.seed = seed
        self.segments = tuple(segments)
        self.finish_reason: FinishWord = finish_reason
        self.stop_reason: str | int | None = None
        self.plain = plain
        self.delays_ms = (0.0, 0.0)
        self._ids = ids
        self._length = segments[-1].end
        self._source = source

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        # Hot for long plans: the engine reads each id by itself.
        if index.__class__ is int and 0 <= index < len(self._ids) and index < self._length:
            return self._ids[index]
        if isinstance(index, slice):
            wanted = range(*index.indices(self._length))
            if not wanted:
                return []
            self._grow(max(wanted[0], wanted[-1]) + 1)
            if wanted.step == 1:
                return self._ids[wanted.start : wanted.stop]
            return [self._ids[place] for place in wanted]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(f"the plan has {self._length} tokens, no token {index}")
        if index >= len(self._ids):
            self._grow(min(index + _GROW_TOKENS, self._length))
        return self._ids[index]

    def to_list(self) -> list[int]:
        """All ids, as a new list."""
        return self[:]

    def end_at_stop(self, num_tokens: int, stop_reason: str | int) -> None:
        """Shorten the plan: its `num_tokens`-th token completes a stop."""
        self._length = num_tokens
        self.segments = clip_segments(self.segments, num_tokens)
        self.finish_reason = "stop"
        self.stop_reason = stop_reason

    def _grow(self, want: int) -> None:
        if self._source is not None and len(self._ids) < want:
            self._source.grow(self._ids, want)


def clip_segments(segments: Sequence[Segment], length: int) -> tuple[Segment, ...]:
    """The segments of a plan that is cut to `length` tokens."""
    kept = (segment for segment in segments if segment.start < length)
    return tuple(seg if seg.end <= length else replace(seg, end=length) for seg in kept)
