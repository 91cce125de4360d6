from __future__ import annotations

import pytest

from app.pd.holds import Hold, HoldRegistry, HoldState
from app.pd.params import KvLoadError, KvLoadFault
from mocker_core.errors import DuplicateIdError
from mocker_core.events import SourceExpired, SourceHeld
from mocker_core.hashing import token_hash
from mocker_core.request import HandoffId, RequestId

H, R = HandoffId("h"), RequestId("r")
TOKENS = [1, 2, 3]


def held(registry: HoldRegistry) -> Hold:
    hold = registry.add(H, R, TOKENS)
    registry.on_lifecycle(0, SourceHeld(H, R, 4.0, 3))
    return hold


def claim(
    registry: HoldRegistry, handoff_id: str = "h", engine_id: str = "e", tokens: list[int] = TOKENS
) -> Hold:
    return registry.claim(handoff_id, engine_id, len(tokens), token_hash(tokens))


def fault_of(registry: HoldRegistry, handoff_id: str = "h", engine_id: str = "e") -> KvLoadFault:
    with pytest.raises(KvLoadError) as caught:
        claim(registry, handoff_id, engine_id)
    return caught.value.fault


def test_held_source_is_claimed_once() -> None:
    registry = HoldRegistry("e")
    hold = held(registry)
    assert (registry.held, hold.transfer_delay_ms) == (1, 4.0)
    assert claim(registry) is hold
    assert fault_of(registry) is KvLoadFault.USED


def test_source_that_still_prefills_may_be_claimed_and_is_settled_when_held() -> None:
    registry = HoldRegistry("e")
    hold = registry.add(H, R, TOKENS)
    claim(registry)
    assert not hold.settled.is_set()
    registry.on_lifecycle(0, SourceHeld(H, R, None, 3))
    assert hold.settled.is_set()
    assert hold.state is HoldState.CLAIMED


@pytest.mark.parametrize(
    ("end", "fault"),
    [
        (HoldState.RELEASED, KvLoadFault.USED),
        (HoldState.CANCELLED, KvLoadFault.EXPIRED),
        (HoldState.FAILED, KvLoadFault.EXPIRED),
    ],
)
def test_ended_source_says_how_it_ended(end: HoldState, fault: KvLoadFault) -> None:
    registry = HoldRegistry("e")
    hold = held(registry)
    registry.end(H, end)
    assert hold.over.is_set()
    assert (len(registry), registry.ended_total[end]) == (0, 1)
    assert fault_of(registry) is fault


def test_expired_source_is_counted_and_refused() -> None:
    registry = HoldRegistry("e")
    held(registry)
    registry.on_lifecycle(0, SourceExpired(H, R))
    assert registry.ended_total[HoldState.EXPIRED] == 1
    assert fault_of(registry) is KvLoadFault.EXPIRED


def test_foreign_and_unknown_parameters_are_told_apart() -> None:
    registry = HoldRegistry("e")
    held(registry)
    assert fault_of(registry, engine_id="other") is KvLoadFault.FOREIGN
    assert fault_of(registry, handoff_id="nobody") is KvLoadFault.UNKNOWN


def test_other_prompt_is_refused_and_the_hold_stays_claimable() -> None:
    registry = HoldRegistry("e")
    held(registry)
    for tokens in ([1, 2, 4], [1, 2]):
        with pytest.raises(KvLoadError, match="another prompt") as caught:
            claim(registry, tokens=tokens)
        assert caught.value.fault is KvLoadFault.OTHER_PROMPT
    claim(registry)


def test_second_end_is_ignored() -> None:
    registry = HoldRegistry("e")
    held(registry)
    registry.end(H, HoldState.RELEASED)
    registry.end(H, HoldState.CANCELLED)
    assert dict(registry.ended_total) == {HoldState.RELEASED: 1}


def test_live_id_is_a_duplicate_and_an_ended_one_may_come_again() -> None:
    registry = HoldRegistry("e")
    held(registry)
    with pytest.raises(DuplicateIdError):
        registry.add(H, R, TOKENS)
    registry.end(H, HoldState.RELEASED)
    registry.add(H, R, TOKENS)
    claim(registry)


def test_memory_of_ended_sources_is_bounded() -> None:
    registry = HoldRegistry("e")
    for number in range(5000):
        registry.add(HandoffId(str(number)), R, TOKENS)
        registry.end(str(number), HoldState.RELEASED)
    assert fault_of(registry, "0") is KvLoadFault.UNKNOWN
    assert fault_of(registry, "4999") is KvLoadFault.USED
