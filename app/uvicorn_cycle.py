"""What is known of uvicorn's insides: a started chunked answer can be written straight to its transport.

uvicorn's `send` does the same for a body that is not the last, after a coroutine, a message and checks that
cost as much as the write. For any other caller (server, protocol, wrapped `send`) `cycle_of` is None.
"""

from __future__ import annotations

from typing import Any, Protocol


class Transport(Protocol):
    def write(self, data: bytes) -> None: ...


class Flow(Protocol):
    write_paused: bool


class Cycle(Protocol):
    """One request and its answer on a connection."""

    disconnected: bool
    flow: Flow
    transport: Transport


def cycle_of(send: Any) -> Cycle | None:
    """The cycle of a `send` whose answer has started, chunked; None if chunks must go through `send`."""
    cycle: Any = getattr(send, "__self__", None)
    if type(cycle).__module__ != "uvicorn.protocols.http.httptools_impl":
        return None
    try:
        chunked = cycle.chunked_encoding and cycle.response_started and not cycle.response_complete
        usable = chunked and cycle.scope["method"] != "HEAD"
        # What a write will need; another version of uvicorn may name it otherwise.
        _ = cycle.disconnected, cycle.flow.write_paused, cycle.transport.write
    except AttributeError:
        return None
    found: Cycle | None = cycle if usable else None
    return found
