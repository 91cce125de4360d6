"""How a planned choice gets into the engine and out of it again; the seam for prefill/decode handoffs.

`DirectSubmitter` hands it to the engine. Another submitter may look at `kv_transfer_params` first; it must
see to it that the run's sink (already registered with the dispatcher) gets its tokens, or `Dispatcher.fail`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from app.openai.choice import ChoiceRun
from app.stream_response import Header
from mocker_core.request import DirectRequest, RequestId


def _nothing() -> None: ...


def _no_headers(headers: Iterable[Header]) -> None: ...


class SubmitContext(Struct, frozen=True):
    """What came with the HTTP request and concerns the way into the engine."""

    http_request_id: str
    kv_transfer_params: Mapping[str, Any] | None = None
    dp_rank: int | None = None
    headers: Mapping[bytes, bytes] = {}
    cut_off: Callable[[], None] = _nothing
    add_headers: Callable[[Iterable[Header]], None] = _no_headers
    cache_salt: str | None = None


class Submitter(Protocol):
    """Called on the event loop; must not block. A start that takes time is the submitter's own task."""

    def submit(self, request: DirectRequest, run: ChoiceRun, context: SubmitContext) -> None:
        """Start the request. Raises MockerError or ApiError to refuse it with a true status.

        It may set `run.kv_transfer_params` at any time before the run ends: a whole answer shows it.
        """

    def cancel(self, run: ChoiceRun) -> None:
        """The client went away (or a sibling failed). Never raises."""


class RequestObserver(Protocol):
    """Hears of each engine request once when it was submitted and once at its end, on the event loop."""

    def on_request_start(self, run: ChoiceRun) -> None: ...

    def on_request_end(self, run: ChoiceRun) -> None:
        """`run.outcome` says how it ended; its times and counts are final."""


class SubmitsToEngine(Protocol):
    """The two calls of the engine that submitting needs."""

    def submit(self, request: DirectRequest, dp_rank: int | None = None) -> int: ...

    def cancel_soon(self, request_id: RequestId) -> None: ...


class DirectSubmitter:
    """Straight into the engine; `kv_transfer_params` have no effect."""

    def __init__(self, engine: SubmitsToEngine) -> None:
        self._engine = engine

    def submit(self, request: DirectRequest, run: ChoiceRun, context: SubmitContext) -> None:
        run.dp_rank = self._engine.submit(request, context.dp_rank)

    def cancel(self, run: ChoiceRun) -> None:
        self._engine.cancel_soon(run.request_id)
