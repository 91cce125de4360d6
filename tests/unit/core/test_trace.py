"""Trace rows: parsing with its errors, and identities of hashed, partly hashed and unique content."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mocker_core.errors import ArgumentError
from mocker_core.trace import TraceIdentities, TraceRow, TraceSequence, parse_trace

GOOD: dict[str, Any] = {"timestamp": 5, "input_length": 9, "output_length": 3, "hash_ids": [1, 2]}


def parse(*records: Any) -> list[TraceRow]:
    return list(parse_trace(json.dumps(record) for record in records))


def row(input_length: int, *hash_ids: int, index: int = 0) -> TraceRow:
    return TraceRow(index, 0.0, input_length, 1, hash_ids)


def test_row_is_read_with_every_field() -> None:
    record = GOOD | {"session_id": 7, "delay_ms": 2.5, "priority": -3}
    assert parse(record) == [TraceRow(0, 5.0, 9, 3, (1, 2), "7", 2.5, -3)]


def test_missing_optional_fields_have_their_defaults() -> None:
    assert parse({"timestamp": 0, "input_length": 1, "output_length": 0}) == [TraceRow(0, 0.0, 1, 0)]
    assert parse(GOOD | {"hash_ids": None, "priority": None, "session_id": None})[0].hash_ids == ()


def test_delay_has_two_names() -> None:
    assert parse(GOOD | {"session_id": "s", "delay": 4})[0].delay_ms == 4.0
    assert parse(GOOD | {"session_id": "s", "delay_ms": 4})[0].delay_ms == 4.0


def test_row_of_a_session_needs_no_timestamp() -> None:
    assert parse({"session_id": "s", "input_length": 1, "output_length": 1})[0].timestamp_ms == 0.0


def test_blank_lines_are_no_rows_but_count_as_lines() -> None:
    lines = [json.dumps(GOOD), "", "  \n", json.dumps(GOOD), "nonsense"]
    rows = parse_trace(lines)
    assert [next(rows).trace_index, next(rows).trace_index] == [0, 1]
    with pytest.raises(ArgumentError, match="trace line 5 is not JSON"):
        next(rows)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"timestamp": None}, "timestamp is None; it must be a number >= 0"),
        ({"timestamp": -1}, "timestamp is -1; it must be a number >= 0"),
        ({"timestamp": "1"}, "timestamp is '1'; it must be a number >= 0"),
        ({"timestamp": True}, "timestamp is True; it must be a number >= 0"),
        ({"timestamp": float("nan")}, "timestamp is nan; it must be a number >= 0"),
        ({"timestamp": float("inf")}, "timestamp is inf; it must be a number >= 0"),
        ({"timestamp": 10**400}, "timestamp is 1000"),
        ({"input_length": 0}, "input_length is 0; it must be a whole number >= 1"),
        ({"input_length": None}, "input_length is None; it must be a whole number >= 1"),
        ({"input_length": 2.0}, "input_length is 2.0; it must be a whole number >= 1"),
        ({"output_length": -1}, "output_length is -1; it must be a whole number >= 0"),
        ({"output_length": True}, "output_length is True; it must be a whole number >= 0"),
        ({"priority": 1.5}, "priority is 1.5; it must be a whole number"),
        ({"delay": -2}, "delay_ms is -2; it must be a number >= 0"),
        ({"hash_ids": ""}, "hash_ids must be a list of whole numbers"),
        ({"hash_ids": "1,2"}, "hash_ids must be a list of whole numbers"),
        ({"hash_ids": [1, "2"]}, "hash_ids must be a list of whole numbers"),
        ({"hash_ids": [1, 2.5]}, "hash_ids must be a list of whole numbers"),
    ],
)
def test_wrong_field_is_refused_by_line_name_and_value(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ArgumentError, match=f"trace line 2: {sentence}"):
        parse(GOOD, GOOD | changes)


def test_line_that_is_no_object_is_refused() -> None:
    with pytest.raises(ArgumentError, match="trace line 1 is list; each line must be one JSON object"):
        parse([1])


def test_trace_block_size_must_be_positive() -> None:
    with pytest.raises(ArgumentError, match="trace block size is 0; it must be >= 1"):
        TraceIdentities(4, 0)


# Where block_size divides trace_block_size identities come in runs, else by segments; the laws are the same.
KINDS = pytest.mark.parametrize(("block_size", "trace_block_size"), [(4, 8), (4, 4), (4, 6), (4, 3)])


@KINDS
def test_equal_hash_ids_give_equal_identities_as_far_as_they_go(
    block_size: int, trace_block_size: int
) -> None:
    identities = TraceIdentities(block_size, trace_block_size)
    count = 24 // trace_block_size
    first = identities.prompt(row(24, *range(count)))
    again = identities.prompt(row(24, *range(count)))
    other = identities.prompt(row(24, *range(count - 1), 99, index=1))
    assert len(first) == len(set(first)) == 6
    assert first == again
    shared = trace_block_size * (count - 1) // block_size
    assert first[:shared] == other[:shared]
    assert not set(first[shared:]) & set(other[shared:])


@KINDS
def test_same_hash_id_after_another_parent_is_another_identity(
    block_size: int, trace_block_size: int
) -> None:
    identities = TraceIdentities(block_size, trace_block_size)
    first = identities.prompt(row(2 * trace_block_size * 4, *[1] * 8))
    second = identities.prompt(row(2 * trace_block_size * 4, 2, *[1] * 7))
    assert len(set(first)) == len(first)
    assert not set(first) & set(second)


@KINDS
def test_last_hash_id_is_cut_at_the_input_length(block_size: int, trace_block_size: int) -> None:
    identities = TraceIdentities(block_size, trace_block_size)
    count = -(-22 // trace_block_size)
    cut = identities.prompt(row(22, *range(count)))
    longer = identities.prompt(row(24, *range(-(-24 // trace_block_size))))
    assert len(cut) == 5
    assert cut == longer[:5]


@KINDS
def test_tokens_without_a_hash_id_are_unique_to_their_row(block_size: int, trace_block_size: int) -> None:
    identities = TraceIdentities(block_size, trace_block_size)
    first = identities.prompt(row(24, 1))
    second = identities.prompt(row(24, 1, index=1))
    covered = trace_block_size // block_size
    assert first[:covered] == second[:covered]
    assert not set(first[covered:]) & set(second[covered:])
    assert len(first) == len(set(first)) == 6


def test_more_hash_ids_than_tokens_are_no_more_blocks() -> None:
    assert len(TraceIdentities(4, 8).prompt(row(9, 1, 2, 3, 4))) == 2
    assert len(TraceIdentities(4, 6).prompt(row(9, 1, 2, 3, 4))) == 2


def test_prompt_shorter_than_a_block_has_no_identity() -> None:
    assert TraceIdentities(4, 8).prompt(row(3, 1)) == []
    assert TraceIdentities(4, 6).prompt(row(3, 1)) == []


def test_generated_blocks_are_unique_to_the_request() -> None:
    identities = TraceIdentities(4, 8)
    first, second = TraceSequence(row(8, 1), identities), TraceSequence(row(8, 1, index=1), identities)
    parent = first.prompt_identities()[-1]
    assert parent == second.prompt_identities()[-1]
    made = {first.extend(parent, 2), second.extend(parent, 2), first.extend(parent, 3)}
    assert len(made) == 3
    assert not made & set(first.prompt_identities())
