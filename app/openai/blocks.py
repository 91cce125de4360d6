"""A choice as blocks (a text, a piece of reasoning, a tool call), read token by token or all at once.

    BlockWriter ── EventShape   a protocol's records for a block's start, its pieces and its end

Streamed and whole answers of Responses and Messages both come from here, so that they agree. Must not
know HTTP, nor any protocol's field names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from app.openai.logprob_shapes import LogprobSource
from app.text.plan import OutputPlan, Segment
from app.text.plan_reader import Delta, PlanReader
from app.text.token_json import json_fragment
from app.text.tokenizer import Tokenizer

BlockKind = Literal["content", "reasoning", "tool_call"]


@dataclass(slots=True)
class Block:
    """`number`: its place among the answer's blocks. `complete` False: the limit cut it. `name`: a call's
    function. `text` is whole once the block has ended; `logprobs` are a content block's entries."""

    kind: BlockKind
    number: int
    name: str = ""
    call_index: int = 0
    text: str = ""
    complete: bool = True
    logprobs: list[dict[str, Any]] = field(default_factory=list)


class EventShape(Protocol):
    """Makes a protocol's records. Called in the order of the stream; may count."""

    def block_start(self, block: Block) -> list[bytes]: ...

    def block_delta(self, block: Block, fragment: bytes, logprobs: list[dict[str, Any]]) -> bytes:
        """`fragment`: text as the inside of a JSON string."""

    def block_end(self, block: Block) -> list[bytes]: ...


class BlockWriter:
    """One reader of a choice: tokens go in, a shape's records come out.

    `interval_tokens`: how many tokens are joined in one piece."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        fragments: Mapping[int, bytes],
        plan: OutputPlan,
        shape: EventShape,
        *,
        logprobs: LogprobSource | None = None,
        interval_tokens: int = 1,
    ) -> None:
        self.blocks: list[Block] = []
        self._tokenizer = tokenizer
        self._fragments = fragments
        self._plan = plan
        self.shape = shape
        self._logprobs = logprobs
        self._interval_tokens = interval_tokens
        self._plain = plan.plain and logprobs is None and interval_tokens == 1
        self._reader = None if self._plain else PlanReader(tokenizer, plan)
        self._segments = _Cursor(plan)
        self._block: Block | None = None
        self._position = 0
        self._since_record = 0
        self._held: list[str] = []
        self._pieces: list[str] = []
        self._entries: list[dict[str, Any]] = []

    def token(self, token_id: int) -> list[bytes]:
        """The records that the next token lets out."""
        # Hot: once per token.
        self._position += 1
        if self._plain:
            records = [] if self._block is not None else self._open("content", "", 0)
            assert self._block is not None
            records.append(self.shape.block_delta(self._block, self._fragments[token_id], []))
            return records
        return self._read(token_id)

    def finish(self, *, complete: bool) -> list[bytes]:
        """What was held back, and the last block's end. `complete` False: the answer was cut."""
        records: list[bytes] = []
        if self._reader is not None:
            for delta in self._reader.finish():
                self._take(delta, records)
        self._flush(records)
        if self._block is not None:
            self._block.complete = complete
            self._close(records)
        return records

    def _read(self, token_id: int) -> list[bytes]:
        records: list[bytes] = []
        position = self._position - 1
        if self._logprobs is not None and self._segments.kind_at(position) == "content":
            self._entries.append(self._logprobs.entry(position, token_id))
        assert self._reader is not None
        for delta in self._reader.push(token_id):
            self._take(delta, records)
        self._since_record += 1
        if self._since_record >= self._interval_tokens or not self._pieces:
            self._flush(records)
        return records

    def _take(self, delta: Delta, records: list[bytes]) -> None:
        block = self._block
        if block is None or delta.begins or (block.kind, block.call_index) != (delta.kind, delta.index):
            self._flush(records)
            self._close(records)
            records += self._open(delta.kind, delta.name, delta.index)
        self._held.append(delta.text)

    def _flush(self, records: list[bytes]) -> None:
        block = self._block
        if block is None or not self._held:
            return
        text = "".join(self._held)
        self._held.clear()
        self._pieces.append(text)
        self._since_record = 0
        records.append(self.shape.block_delta(block, json_fragment(text), self._take_entries(block)))

    def _take_entries(self, block: Block) -> list[dict[str, Any]]:
        if block.kind != "content" or not self._entries:
            return []
        entries, self._entries = self._entries, []
        block.logprobs += entries
        return entries

    def _open(self, kind: BlockKind, name: str, call_index: int) -> list[bytes]:
        self._block = Block(kind, len(self.blocks), name, call_index)
        self.blocks.append(self._block)
        self._pieces = []
        return self.shape.block_start(self._block)

    def _close(self, records: list[bytes]) -> None:
        block, self._block = self._block, None
        if block is None:
            return
        self._take_entries(block)
        plain = self._plain
        block.text = self._tokenizer.decode(self._plan[: self._position]) if plain else "".join(self._pieces)
        records += self.shape.block_end(block)


def read_blocks(
    tokenizer: Tokenizer,
    plan: OutputPlan,
    num_tokens: int,
    *,
    complete: bool,
    logprobs: LogprobSource | None = None,
) -> list[Block]:
    """The blocks of a plan's first `num_tokens` tokens, as a stream of them would end."""
    if plan.plain and logprobs is None:
        if not num_tokens:
            return []
        return [Block("content", 0, text=tokenizer.decode(plan[:num_tokens]), complete=complete)]
    writer = BlockWriter(tokenizer, {}, plan, _Silent(), logprobs=logprobs)
    for token_id in plan[:num_tokens]:
        writer.token(token_id)
    writer.finish(complete=complete)
    return writer.blocks


class _Silent:
    """A shape for those who only want the blocks."""

    def block_start(self, block: Block) -> list[bytes]:
        return []

    def block_delta(self, block: Block, fragment: bytes, logprobs: list[dict[str, Any]]) -> bytes:
        return b""

    def block_end(self, block: Block) -> list[bytes]:
        return []


class _Cursor:
    """The segment of a position, for positions that only grow."""

    def __init__(self, plan: OutputPlan) -> None:
        self._segments: tuple[Segment, ...] = plan.segments
        self._place = 0

    def kind_at(self, position: int) -> str:
        while self._place + 1 < len(self._segments) and position >= self._segments[self._place].end:
            self._place += 1
        return self._segments[self._place].kind
