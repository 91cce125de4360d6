"""Trace rows (Mooncake JSONL) and their block identities, without building a single token.

Each hash id stands for `trace_block_size` tokens that are the same wherever that id appears; the
last one is cut at input_length; what no id covers is unique to its row (engine.md section 10).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mocker_core.errors import ArgumentError
from mocker_core.request import BlockIdentity


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request of a trace. Times in ms, lengths in tokens."""

    trace_index: int
    timestamp_ms: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...] = ()
    session_id: str | None = None
    delay_ms: float = 0.0
    priority: int = 0


def parse_trace(lines: Iterable[str]) -> Iterator[TraceRow]:
    """Rows of a JSONL trace; blank lines are skipped. Raises ArgumentError naming the line and the field."""
    index = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise ArgumentError(
                f"trace line {number} is not JSON ({error}); each line must be one object."
            ) from None
        if not isinstance(record, dict):
            raise ArgumentError(
                f"trace line {number} is {type(record).__name__}; each line must be one JSON object."
            )
        yield _row(record, number, index)
        index += 1


def _row(record: dict[str, Any], number: int, index: int) -> TraceRow:
    hash_ids = record.get("hash_ids")
    if hash_ids is None:
        hash_ids = []
    if not isinstance(hash_ids, list) or not all(isinstance(item, int) for item in hash_ids):
        raise ArgumentError(f"trace line {number}: hash_ids must be a list of whole numbers.")
    session_id = record.get("session_id")
    delay = record.get("delay_ms", record.get("delay"))
    return TraceRow(
        trace_index=index,
        timestamp_ms=_number(record, "timestamp", number, default=0.0 if session_id is not None else None),
        input_length=_whole(record, "input_length", number, lowest=1),
        output_length=_whole(record, "output_length", number, lowest=0),
        hash_ids=tuple(hash_ids),
        session_id=None if session_id is None else str(session_id),
        delay_ms=0.0 if delay is None else _number({"delay_ms": delay}, "delay_ms", number),
        priority=_whole(record, "priority", number, lowest=None) if record.get("priority") is not None else 0,
    )


def _number(record: dict[str, Any], name: str, line: int, default: float | None = None) -> float:
    value = record.get(name, default)
    right = isinstance(value, int | float) and not isinstance(value, bool)
    # The comparison also refuses NaN and an integer that no float holds.
    if value is None or not right or not 0 <= value <= sys.float_info.max:
        raise ArgumentError(f"trace line {line}: {name} is {value!r}; it must be a number >= 0.")
    return float(value)


def _whole(record: dict[str, Any], name: str, line: int, *, lowest: int | None) -> int:
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or (lowest is not None and value < lowest):
        bound = "a whole number" if lowest is None else f"a whole number >= {lowest}"
        raise ArgumentError(f"trace line {line}: {name} is {value!r}; it must be {bound}.")
    return value


class TraceIdentities:
    """Interns chain identities of trace content: equal parents and equal own content give equal identities.

    Where block_size divides trace_block_size, a run of blocks (one hash id after one parent) gets consecutive
    numbers at once; otherwise a block's content is the tuple of hash-id segments that it covers.
    """

    def __init__(self, block_size: int, trace_block_size: int) -> None:
        if trace_block_size < 1:
            raise ArgumentError(f"trace block size is {trace_block_size}; it must be >= 1.")
        self.block_size = block_size
        self.trace_block_size = trace_block_size
        self._blocks_per_hash = trace_block_size // block_size if trace_block_size % block_size == 0 else 0
        self._next_identity = 0
        self._runs: dict[tuple[int, int], int] = {}
        self._contents: dict[tuple[Any, ...], BlockIdentity] = {}

    def unique(self) -> BlockIdentity:
        """An identity that nothing else has: a block with tokens unique to one request."""
        self._next_identity += 1
        return BlockIdentity(self._next_identity)

    def prompt(self, row: TraceRow) -> list[BlockIdentity]:
        """Identities of the full prompt blocks of a row."""
        if self._blocks_per_hash:
            return self._prompt_by_runs(row)
        return self._prompt_by_segments(row)

    def _prompt_by_runs(self, row: TraceRow) -> list[BlockIdentity]:
        full = row.input_length // self.block_size
        per_hash = self._blocks_per_hash
        identities: list[int] = []
        runs = self._runs
        base = 0
        for hash_id in row.hash_ids[: -(-full // per_hash)]:
            key = (base, hash_id)
            found = runs.get(key)
            if found is None:
                found = runs[key] = self._next_identity + 1
                self._next_identity += per_hash
            base = found
            identities.extend(range(base, base + per_hash))
        del identities[full:]
        while len(identities) < full:
            identities.append(self.unique())
        return identities  # type: ignore[return-value]  # BlockIdentity is int; a cast per block would cost

    def _prompt_by_segments(self, row: TraceRow) -> list[BlockIdentity]:
        size, span = self.block_size, self.trace_block_size
        covered = min(row.input_length, len(row.hash_ids) * span)
        identities: list[BlockIdentity] = []
        parent: BlockIdentity | None = None
        for start in range(0, row.input_length - size + 1, size):
            if start + size > covered:
                parent = self.unique()
            else:
                key = (parent, *_segments(row.hash_ids, start, start + size, span))
                found = self._contents.get(key)
                if found is None:
                    found = self._contents[key] = self.unique()
                parent = found
            identities.append(parent)
        return identities


def _segments(hash_ids: Sequence[int], start: int, end: int, span: int) -> Iterator[tuple[int, int, int]]:
    """(hash id, first offset, last offset) of the trace blocks that tokens start..end lie in."""
    while start < end:
        index, offset = divmod(start, span)
        length = min(span - offset, end - start)
        yield hash_ids[index], offset, offset + length
        start += length


class TraceSequence:
    """`BlockSequence` of a trace row. Generated tokens are unique to the request, so its own blocks only
    re-hit.
    """

    __slots__ = ("_identities", "_row")

    def __init__(self, row: TraceRow, identities: TraceIdentities) -> None:
        self._row = row
        self._identities = identities

    def prompt_identities(self) -> list[BlockIdentity]:
        return self._identities.prompt(self._row)

    def extend(self, parent: BlockIdentity | None, index: int) -> BlockIdentity:
        return self._identities.unique()

    def block_tokens(self, index: int) -> None:
        return None
