"""Lets a few requests start per turn of the event loop, first come first served.

Starting a request takes a tenth of a millisecond or more on the loop that also ends passes. Without the
gate a burst of hundreds would hold up every open stream for as long as all of them take. Must not know
requests.
"""

from __future__ import annotations

import asyncio
from collections import deque

# About 4 ms of work. Fewer would make full-speed runs slower: more passes with smaller batches.
STARTS_PER_TURN = 32


class AdmissionGate:
    """`await enter()` before work that takes long without a break."""

    __slots__ = ("_left", "_per_turn", "_turning", "_waiting")

    def __init__(self, per_turn: int = STARTS_PER_TURN) -> None:
        self._per_turn = per_turn
        self._left = per_turn
        self._turning = False
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Returns at once while this turn has room, else in a later turn."""
        if self._left and not self._waiting:
            self._left -= 1
            self._turn_later()
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._turn_later()
        await turn

    def _turn_later(self) -> None:
        if not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turning = False
        self._left = self._per_turn
        while self._waiting and self._left:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._left -= 1
        if self._left < self._per_turn:
            self._turn_later()
