"""Plans an answer when its request comes in: which tokens, how many, and how it ends.

Deterministic from (request seed, else server seed and request id; prompt; choice index; position).
Must not know HTTP or the engine, which reads a plan as a sequence of ids.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from itertools import cycle, islice
from typing import Literal

from app.text.lengths import LengthModel
from app.text.plan import (
    OutputPlan,
    PlanFinish,
    PlanRequest,
    ReasoningOptions,
    Segment,
    SegmentKind,
    ToolCallText,
    clip_segments,
)
from app.text.plan_reader import find_stop
from app.text.prose import MASK64, PhraseBank, Prose, RandomWords
from app.text.token_json import StandsAlone
from app.text.tokenizer import Tokenizer

__all__ = [
    "ContentMode",
    "OutputPlan",
    "OutputPlanner",
    "PlanRequest",
    "ReasoningOptions",
    "Segment",
    "ToolCallText",
]

ContentMode = Literal["lorem", "echo", "random"]

_LENGTH_SALT = 0x9E3779B97F4A7C15
_REASONING_SALT = 0xC2B2AE3D27D4EB4F


class OutputPlanner:
    """Makes plans with one tokenizer, content mode, server seed and length model. Shared by all requests.

    An answer ends with "stop" only if fewer than max_tokens tokens are planned: as in vLLM, the end
    of the text would need one more token."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        mode: ContentMode = "lorem",
        server_seed: int = 0,
        lengths: LengthModel | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._mode = mode
        self._server_seed = server_seed
        self._lengths = lengths or LengthModel()
        self._bank = PhraseBank(tokenizer)
        self._alone = StandsAlone(tokenizer)
        self._bank_plain = self._all_alone(self._bank.words if mode == "random" else self._bank.prose_ids())

    def plan(self, request: PlanRequest) -> OutputPlan:
        """An answer in the planner's mode."""
        if self._mode == "echo":
            return self._plan_echo(request)
        seed = self.derive_seed(request)
        if request.reasoning is not None:
            return self._plan_reasoned(request, seed, request.reasoning)
        total = None if request.ignore_eos else self._natural_tokens(request, seed)
        length, finish = _cut(request, total)
        ids: list[int] = []
        source = self._source(seed, total, 0)
        segments = (Segment("content", 0, length),)
        plan = OutputPlan(request, seed, segments, finish, ids=ids, source=source, plain=self._bank_plain)
        return self._watch_stops(plan)

    def plan_text(
        self,
        request: PlanRequest,
        text: str,
        *,
        repeat: bool = False,
        reasoning_text: str | None = None,
    ) -> OutputPlan:
        """The given text (dataset, fixture, structured output): "stop" at its end, "length" if cut.

        repeat: begin again, if ignore_eos or min_tokens ask for more tokens than it has. Without it
        both are ignored, as by a grammar that only lets the text end. An empty text becomes one line
        end. reasoning_text goes before it; without one the request's reasoning options hold."""
        ids = self._tokenizer.encode(text or "\n")
        return self._plan_ids(request, ids, repeat=repeat, reasoning_text=reasoning_text)

    def plan_tool_calls(
        self,
        request: PlanRequest,
        calls: Sequence[ToolCallText],
        content: str = "",
        *,
        reasoning_text: str | None = None,
    ) -> OutputPlan:
        """Optional content, then at least one call: "tool_calls" at the end, "length" if cut.

        The tokens are those of the template's rendering of such a message, so that the next turn
        finds them in the prefix cache. ignore_eos and min_tokens are ignored."""
        tokenizer, seed = self._tokenizer, self.derive_seed(request)
        draft = self._reasoning_draft(request, seed, reasoning_text)
        if content:
            draft.add("content", tokenizer.encode(content))
        for index, call in enumerate(calls):
            draft.add("marker", tool_call_header(tokenizer, call.name))
            draft.add("tool_call", tokenizer.encode(call.arguments or "{}"), call.name, index)
        return self._finish_draft(request, seed, draft, "tool_calls")

    def derive_seed(self, request: PlanRequest) -> int:
        """64 bits from seed (or server seed and request id), prompt and choice index."""
        own = f"{self._server_seed}\x1f{request.request_id}" if request.seed is None else str(request.seed)
        head = f"{own}\x1f{request.choice_index}\x1e".encode("utf-8", "surrogatepass")
        digest = blake2b(head, digest_size=8)
        digest.update(array("I", request.prompt_token_ids))
        return int.from_bytes(digest.digest(), "little")

    def _natural_tokens(self, request: PlanRequest, seed: int) -> int:
        """Where the text would end by itself."""
        drawn = self._lengths.draw_tokens(seed * _LENGTH_SALT & MASK64)
        return max(drawn, request.min_tokens, 1)

    def _source(self, seed: int, total: int | None, origin: int) -> Prose | RandomWords:
        if self._mode == "random":
            return RandomWords(self._bank, seed)
        return Prose(self._bank, seed, total, origin)

    def _plan_echo(self, request: PlanRequest) -> OutputPlan:
        if request.echo_text is not None:
            ids = self._tokenizer.encode(request.echo_text or "\n")
        else:
            ids = list(request.prompt_token_ids) or self._tokenizer.encode("\n")
        return self._plan_ids(request, ids, repeat=True, reasoning_text=None)

    def _plan_ids(
        self, request: PlanRequest, ids: list[int], *, repeat: bool, reasoning_text: str | None
    ) -> OutputPlan:
        seed = self.derive_seed(request)
        draft = self._reasoning_draft(request, seed, reasoning_text)
        if repeat:
            wanted = request.max_tokens if request.ignore_eos else request.min_tokens
            if (missing := wanted - len(draft.ids)) > len(ids):
                ids = list(islice(cycle(ids), missing))
        draft.add("content", ids)
        return self._finish_draft(request, seed, draft, "stop")

    def _plan_reasoned(self, request: PlanRequest, seed: int, options: ReasoningOptions) -> OutputPlan:
        total = request.max_tokens if request.ignore_eos else self._natural_tokens(request, seed)
        draft = self._reasoning_draft(request, seed, None)
        start = len(draft.ids)
        body: list[int] = []
        if total > start:
            self._source(seed, total - start, 0).grow(body, min(total, request.max_tokens) - start)
            draft.add("content", body[: total - start])
        return self._finish_draft(request, seed, draft, "stop")

    def _reasoning_draft(self, request: PlanRequest, seed: int, text: str | None) -> _Draft:
        """The reasoning part: the given text, or prose by the request's options, or nothing."""
        draft, options = _Draft(), request.reasoning
        if text:
            draft.add("reasoning", self._tokenizer.encode(text))
            return draft
        if options is None or options.ratio <= 0:
            return draft
        total = request.max_tokens if request.ignore_eos else self._natural_tokens(request, seed)
        markers = (options.start_token_id is not None) + (options.end_token_id is not None)
        count = min(max(round(options.ratio * total), 1), total - 1 - markers)
        if count < 1:
            return draft
        ids: list[int] = []
        self._source(seed ^ _REASONING_SALT, count, 0).grow(ids, count)
        if options.start_token_id is not None:
            draft.add("marker", [options.start_token_id])
        draft.add("reasoning", ids[:count])
        if options.end_token_id is not None:
            draft.add("marker", [options.end_token_id])
        return draft

    def _finish_draft(self, request: PlanRequest, seed: int, draft: _Draft, ending: PlanFinish) -> OutputPlan:
        length, finish = _cut(request, len(draft.ids), ending)
        segments = clip_segments(draft.segments, length)
        plain = len(segments) == 1 and segments[0].kind == "content" and self._all_alone(draft.ids)
        return self._watch_stops(OutputPlan(request, seed, segments, finish, ids=draft.ids, plain=plain))

    def _watch_stops(self, plan: OutputPlan) -> OutputPlan:
        """End the plan at the token that completes a stop, so that the engine runs no token more."""
        if plan.request.stop or plan.request.stop_token_ids:
            if found := find_stop(self._tokenizer, plan):
                plan.end_at_stop(*found)
            plan.plain = False
        return plan

    def _all_alone(self, ids: Sequence[int] | set[int]) -> bool:
        return all(map(self._alone.__getitem__, ids))


def tool_call_header(tokenizer: Tokenizer, name: str) -> list[int]:
    """The tokens before a call's arguments, as both a plan and the chat template have them."""
    return [*tokenizer.marker("<|tool_call|>"), *tokenizer.encode(name), *tokenizer.marker("<|tool_args|>")]


class _Draft:
    """Ids and segments while an answer is put together."""

    __slots__ = ("ids", "segments")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.segments: list[Segment] = []

    def add(self, kind: SegmentKind, ids: Sequence[int], name: str = "", index: int = 0) -> None:
        if ids:
            start = len(self.ids)
            self.ids += ids
            self.segments.append(Segment(kind, start, len(self.ids), name, index))


def _cut(request: PlanRequest, total: int | None, ending: PlanFinish = "stop") -> tuple[int, PlanFinish]:
    """(planned length, finish reason) of an answer of `total` tokens (None: endless)."""
    if total is None or total >= request.max_tokens:
        return request.max_tokens, "length"
    return total, ending
