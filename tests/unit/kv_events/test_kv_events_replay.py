from __future__ import annotations

from app.kv_events.replay import ReplayBuffer


def filled(count: int, steps: int, most_bytes: int = 1000) -> ReplayBuffer:
    buffer = ReplayBuffer(steps, most_bytes)
    for sequence in range(count):
        buffer.append(sequence, b"0123456789")
    return buffer


def test_buffer_keeps_the_newest_messages_only() -> None:
    buffer = filled(10, steps=3)
    assert [sequence for sequence, _ in buffer.between(0, 99, 99)] == [7, 8, 9]
    assert buffer.last_sequence == 9


def test_buffer_is_bounded_in_bytes_too() -> None:
    assert len(filled(100, steps=1000, most_bytes=55)) == 5


def test_buffer_of_no_steps_keeps_nothing() -> None:
    buffer = filled(3, steps=0)
    assert buffer.between(0, 99, 99) == []
    assert buffer.last_sequence == -1


def test_numbers_that_were_dropped_are_passed_over() -> None:
    buffer = ReplayBuffer(10)
    for sequence in (3, 4, 8, 9):
        buffer.append(sequence, b"")
    assert [sequence for sequence, _ in buffer.between(5, 8, 10)] == [8]
    assert [sequence for sequence, _ in buffer.between(0, 99, 2)] == [3, 4]
