"""Reads a plan's tokens as what the client sees: reasoning, content and tool-call text, in order.

Owns where text of one kind ends and the next begins, and where a stop comes up; streamed
and unstreamed answers both come from here. Knows nothing of JSON or SSE.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from app.text.detokenizer import Detokenizer
from app.text.plan import OutputPlan, Segment, ToolCallText
from app.text.tokenizer import Tokenizer


# Not frozen: made once per token, and a frozen one costs twice as much.
@dataclass(slots=True)
class Delta:
    """A piece of visible text. For a tool call, `name` is set in every piece; `begins` in its first."""

    kind: Literal["content", "reasoning", "tool_call"]
    text: str
    index: int = 0
    name: str = ""
    begins: bool = False


@dataclass(slots=True)
class PlanText:
    """The visible answer as a whole; an answer without a kind of text has "" or no calls there."""

    content: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCallText] = field(default_factory=list)


class PlanReader:
    """One choice's visible text while its tokens come in.

    Text that is held back belongs to its own segment and is given out when the segment ends. Stops are
    watched in content and reasoning, never in a call's arguments."""

    __slots__ = ("_begins", "_detokenizer", "_place", "_plan", "_position", "_segment", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer, plan: OutputPlan) -> None:
        self._tokenizer = tokenizer
        self._plan = plan
        self._position = 0
        self._place = -1
        self._segment: Segment
        self._begins: bool
        self._enter_next_segment()

    @property
    def stopped(self) -> bool:
        """A stop string or stop token came up; no more text follows."""
        return self._detokenizer.stopped

    @property
    def stop_reason(self) -> str | int | None:
        return self._detokenizer.stop_reason

    def push(self, token_id: int) -> list[Delta]:
        """What the next token lets out: often one delta, none while text is held back, rarely two."""
        deltas: list[Delta] = []
        if self._detokenizer.stopped:
            return deltas
        past_end = self._position >= self._segment.end and self._place + 1 < len(self._plan.segments)
        if past_end and self._leave_segment(deltas):
            return deltas
        self._position += 1
        if self._segment.kind != "marker":
            self._emit(deltas, self._detokenizer.push(token_id))
        return deltas

    def finish(self) -> list[Delta]:
        """What was held back, once no more tokens come."""
        deltas: list[Delta] = []
        self._emit(deltas, self._detokenizer.finish())
        return deltas

    def _emit(self, deltas: list[Delta], text: str) -> None:
        segment = self._segment
        if text and segment.kind != "marker":
            deltas.append(Delta(segment.kind, text, segment.index, segment.name, self._begins))
            self._begins = False

    def _leave_segment(self, deltas: list[Delta]) -> bool:
        """Give out what is held; True if that was a stop after all, else the next segment begins."""
        self._emit(deltas, self._detokenizer.finish())
        if self._detokenizer.stopped:
            return True
        self._enter_next_segment()
        return False

    def _enter_next_segment(self) -> None:
        self._place += 1
        self._segment = segment = self._plan.segments[self._place]
        self._begins = segment.kind == "tool_call"
        if segment.kind in ("marker", "tool_call"):
            self._detokenizer = Detokenizer(self._tokenizer)
            return
        request = self._plan.request
        self._detokenizer = Detokenizer(
            self._tokenizer,
            stop=request.stop,
            stop_token_ids=request.stop_token_ids,
            include_stop_str_in_output=request.include_stop_str_in_output,
            min_tokens=max(0, request.min_tokens - self._position),
        )


def find_stop(tokenizer: Tokenizer, plan: OutputPlan) -> tuple[int, str | int] | None:
    """(number of tokens up to and with the one that completes a stop, which stop), or None."""
    request = plan.request
    if plan.plain and not request.stop_token_ids:
        text = tokenizer.decode(plan)
        if not any(stop in text for stop in request.stop):
            return None  # the usual case, and far cheaper than reading token by token
    reader = PlanReader(tokenizer, plan)
    for count, token_id in enumerate(plan, 1):
        reader.push(token_id)
        if reader.stopped:
            assert reader.stop_reason is not None
            return count, reader.stop_reason
    return None


def read_plan(tokenizer: Tokenizer, plan: OutputPlan, num_tokens: int | None = None) -> PlanText:
    """The visible text of the plan's first `num_tokens` tokens (None: of all)."""
    ids = plan[:num_tokens]
    if plan.plain:
        return PlanText(content=tokenizer.decode(ids))
    reader = PlanReader(tokenizer, plan)
    texts: dict[tuple[str, int, str], list[str]] = {}
    deltas = [delta for token_id in ids for delta in reader.push(token_id)]
    for delta in deltas + reader.finish():
        texts.setdefault((delta.kind, delta.index, delta.name), []).append(delta.text)
    found = PlanText()
    for (kind, _, name), pieces in texts.items():
        text = "".join(pieces)
        if kind == "content":
            found.content += text
        elif kind == "reasoning":
            found.reasoning += text
        else:
            found.tool_calls.append(ToolCallText(name, text))
    return found
