"""Why an answer took as long as it did, for its own client: x-mocker-* headers and a `mocker` field.

Reads the records of the tracker; times are those of the engine's plan, in ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.openai.choice import ChoiceRun
from app.stream_response import Header
from app.timeline.spans import to_us
from app.timeline.tracker import RequestTracker


class TimelineExplainer:
    """`Explainer` of a server."""

    def __init__(self, tracker: RequestTracker) -> None:
        self._tracker = tracker

    def headers(self, runs: Sequence[ChoiceRun]) -> list[Header]:
        """Of the choice whose first token came first."""
        begun = [run for run in runs if run.first_token_ms is not None]
        run = min(begun, key=lambda run: run.first_token_ms or 0.0, default=runs[0])
        record = self._tracker.find(run.request_id)
        headers = [(b"x-mocker-request-id", run.request_id.encode("latin-1", "replace"))]
        if run.dp_rank is not None:
            headers.append((b"x-mocker-rank", b"%d" % run.dp_rank))
        if record is None:
            return headers
        headers.append((b"x-mocker-cached-tokens", b"%d" % record.cached_tokens))
        if record.external_tokens:
            headers.append((b"x-mocker-external-tokens", b"%d" % record.external_tokens))
        start_us = record.spans.start_us
        if record.admitted_us is not None:
            headers.append((b"x-mocker-queue-ms", _ms(record.admitted_us - start_us)))
        if run.first_token_ms is not None:
            headers.append((b"x-mocker-ttft-ms", _ms(to_us(run.first_token_ms) - start_us)))
        return headers

    def extension(self, runs: Sequence[ChoiceRun]) -> dict[str, Any]:
        """The `mocker` field: each choice's facts, and the parts that its time consists of."""
        now_ms = self._tracker.now_ms()
        records = [self._tracker.find(run.request_id) for run in runs]
        return {
            "requests": [
                {**record.summary(now_ms), "parts_ms": record.parts(now_ms)}
                for record in records
                if record is not None
            ]
        }


def _ms(us: int) -> bytes:
    return b"%.3f" % (us / 1000)
