"""The sources that this server holds for decode servers: who may claim one, and how each ended.

Owns the registry and its sentences; the blocks themselves are the core's. Must not know HTTP.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from app.pd.params import KvLoadError, KvLoadFault
from mocker_core.errors import DuplicateIdError
from mocker_core.events import SchedulerLifecycleEvent, SourceExpired, SourceHeld
from mocker_core.hashing import token_hash
from mocker_core.request import HandoffId, RequestId

_ENDED_KEPT: Final = 4096


class HoldState(StrEnum):
    PREFILLING = "prefilling"
    HELD = "held"
    CLAIMED = "claimed"
    RELEASED = "released"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    FAILED = "failed"


@dataclass(slots=True)
class Hold:
    """One source. `settled` is set once it is held or ended, `over` once it ended."""

    handoff_id: HandoffId
    request_id: RequestId
    prompt_tokens: int
    prompt_hash: int
    state: HoldState = HoldState.PREFILLING
    transfer_delay_ms: float | None = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


_GONE = {
    HoldState.RELEASED: (KvLoadFault.USED, "was taken by an earlier decode request"),
    HoldState.CLAIMED: (KvLoadFault.USED, "is being taken by another decode request"),
    HoldState.EXPIRED: (KvLoadFault.EXPIRED, "expired before a decode request came for it"),
    HoldState.CANCELLED: (KvLoadFault.EXPIRED, "was cancelled"),
    HoldState.FAILED: (KvLoadFault.EXPIRED, "failed at the prefill server"),
}


class HoldRegistry:
    """All sources that are alive, and how the latest others ended."""

    def __init__(self, engine_id: str) -> None:
        self.engine_id: Final = engine_id
        self._alive: dict[HandoffId, Hold] = {}
        self._ended: OrderedDict[HandoffId, HoldState] = OrderedDict()
        self.ended_total: Counter[HoldState] = Counter()

    def __len__(self) -> int:
        return len(self._alive)

    @property
    def held(self) -> int:
        """Sources whose blocks stay for a decode server now."""
        return sum(1 for hold in self._alive.values() if hold.state in (HoldState.HELD, HoldState.CLAIMED))

    def find(self, handoff_id: str) -> Hold | None:
        return self._alive.get(HandoffId(handoff_id))

    def find_request(self, request_id: RequestId) -> Hold | None:
        return next((hold for hold in self._alive.values() if hold.request_id == request_id), None)

    def add(self, handoff_id: HandoffId, request_id: RequestId, tokens: Sequence[int]) -> Hold:
        """A prefill for another server begins. Raises DuplicateIdError."""
        if handoff_id in self._alive:
            raise DuplicateIdError(f"handoff id {handoff_id} is in use; send a new id.")
        hold = Hold(handoff_id, request_id, len(tokens), token_hash(tokens))
        self._alive[handoff_id] = hold
        return hold

    def claim(self, handoff_id: str, engine_id: object, prompt_tokens: object, prompt_hash: object) -> Hold:
        """Give a source to the first decode request that rightly asks. Raises KvLoadError."""
        if engine_id != self.engine_id:
            raise KvLoadError(
                KvLoadFault.FOREIGN,
                f"remote_engine_id {engine_id} is not this prefill server, which is {self.engine_id}; "
                "the parameters are of another server or of an earlier run.",
            )
        hold = self.find(handoff_id)
        state = self._ended.get(HandoffId(handoff_id)) if hold is None else hold.state
        if state is None:
            raise KvLoadError(
                KvLoadFault.UNKNOWN, f"remote_request_id {handoff_id} is not known to the prefill server."
            )
        if state in _GONE:
            fault, what = _GONE[state]
            raise KvLoadError(fault, f"The KV of remote_request_id {handoff_id} {what}.")
        assert hold is not None
        if (prompt_tokens, prompt_hash) != (hold.prompt_tokens, hold.prompt_hash):
            raise KvLoadError(
                KvLoadFault.OTHER_PROMPT,
                f"The KV of remote_request_id {handoff_id} is of another prompt, {hold.prompt_tokens} tokens "
                f"long (this one: {prompt_tokens}); send both servers the same prompt.",
            )
        hold.state = HoldState.CLAIMED
        return hold

    def end(self, handoff_id: str, state: HoldState) -> None:
        """It is over, in this way; no effect if it was over before."""
        hold = self._alive.pop(HandoffId(handoff_id), None)
        if hold is None:
            return
        hold.state = state
        hold.settled.set()
        hold.over.set()
        self.ended_total[state] += 1
        self._ended[hold.handoff_id] = state
        if len(self._ended) > _ENDED_KEPT:
            self._ended.popitem(last=False)

    def on_lifecycle(self, dp_rank: int, event: SchedulerLifecycleEvent) -> None:
        if isinstance(event, SourceExpired):
            self.end(event.handoff_id, HoldState.EXPIRED)
        elif isinstance(event, SourceHeld) and (hold := self._alive.get(event.handoff_id)) is not None:
            if hold.state is HoldState.PREFILLING:
                hold.state = HoldState.HELD
            hold.transfer_delay_ms = event.transfer_delay_ms
            hold.settled.set()

    def end_all(self, state: HoldState) -> None:
        for handoff_id in list(self._alive):
            self.end(handoff_id, state)
