from __future__ import annotations

import pytest

from mocker_core.kv.manager import BlockTable
from mocker_core.kv.sequence import HashedSequence
from mocker_core.metrics import LengthStats
from mocker_core.sched.queue import WaitingQueue, length_stats
from mocker_core.sched.state import SchedRequest
from tests.factories import make_request


def make_state(name: str, order: int, *, priority: int = 0, prompt: int = 4) -> SchedRequest:
    request = make_request(name, prompt=prompt, priority=priority)
    state = SchedRequest(request, BlockTable(HashedSequence(request.tokens, (), 4)), (), 2)
    state.arrival_order = order
    return state


def names(queue: WaitingQueue) -> list[str]:
    return [request.request_id for request in queue]


def test_equal_priorities_go_by_order_of_acceptance_not_of_queueing() -> None:
    queue = WaitingQueue()
    for name, order in (("c", 2), ("a", 0), ("b", 1)):
        queue.add(make_state(name, order))
    assert names(queue) == ["a", "b", "c"]


def test_higher_priority_goes_first() -> None:
    queue = WaitingQueue()
    for name, order, priority in (("low", 0, -1), ("mid", 1, 0), ("high", 2, 5)):
        queue.add(make_state(name, order, priority=priority))
    assert names(queue) == ["high", "mid", "low"]


def test_put_back_requests_go_before_every_priority_and_the_latest_is_first() -> None:
    queue = WaitingQueue()
    queue.add(make_state("high", 0, priority=9))
    queue.put_front(make_state("first back", 1, priority=5))
    queue.put_front(make_state("second back", 2, priority=-5))
    assert names(queue) == ["second back", "first back", "high"]


def test_head_follows_removals_front_and_heap() -> None:
    queue = WaitingQueue()
    fresh = [make_state(name, order) for order, name in enumerate("abc")]
    for state in fresh:
        queue.add(state)
    back = make_state("back", 9)
    queue.put_front(back)
    seen = []
    while (head := queue.head()) is not None:
        seen.append(head.request_id)
        queue.remove(head)
    assert seen == ["back", "a", "b", "c"]
    assert len(queue) == 0


def test_removal_from_the_middle_leaves_the_others_in_order() -> None:
    queue = WaitingQueue()
    states = [make_state(name, order) for order, name in enumerate("abcd")]
    for state in states:
        queue.add(state)
    queue.remove(states[0])
    queue.remove(states[2])
    assert names(queue) == ["b", "d"]
    assert states[0] not in queue
    assert states[1] in queue


def test_request_that_leaves_the_heap_and_comes_back_in_front_is_there_once() -> None:
    queue = WaitingQueue()
    state = make_state("a", 0)
    queue.add(state)
    queue.remove(state)
    queue.put_front(state)
    queue.add(make_state("b", 1))
    assert names(queue) == ["a", "b"]
    queue.remove(state)
    assert queue.head() is not state
    assert names(queue) == ["b"]


def test_queueing_twice_is_a_broken_invariant() -> None:
    queue = WaitingQueue()
    state = make_state("a", 0)
    queue.add(state)
    with pytest.raises(AssertionError, match="a is queued twice"):
        queue.put_front(state)


def test_first_in_place_is_by_queue_order_past_all_others() -> None:
    queue = WaitingQueue()
    assert queue.first_in_place() is None
    queue.put_front(make_state("preempted", 0))
    queue.add(make_state("fresh", 1, priority=9))
    for name, order, priority in (("late", 4, 0), ("early", 3, 0), ("urgent", 5, 1)):
        state = make_state(name, order, priority=priority)
        state.kv_in_place = True
        queue.add(state)
    first = queue.first_in_place()
    assert first is not None and first.request_id == "urgent"
    queue.remove(first)
    second = queue.first_in_place()
    assert second is not None and second.request_id == "early"


def test_lengths_tell_fresh_and_put_back_apart() -> None:
    queue = WaitingQueue()
    for order, prompt in enumerate((2, 4, 6)):
        queue.add(make_state(f"f{order}", order, prompt=prompt))
    back = make_state("back", 9, prompt=5)
    queue.put_front(back)
    prefill, decode = queue.lengths()
    assert (prefill.count, prefill.sum_tokens) == (3, 12)
    assert prefill.variance == pytest.approx(8 / 3)
    assert decode == LengthStats(1, 5, 0.0)
    queue.remove(back)
    assert queue.lengths()[1] == LengthStats()


def test_length_stats_of_nothing_are_zero() -> None:
    assert length_stats(0, 0, 0) == LengthStats(0, 0, 0.0)
