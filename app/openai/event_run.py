"""A run whose tokens go to any number of readers as events: Responses and Messages streams.

    EventRun ── Follower   one reader: its BlockWriter, its HTTP response, what it has seen already

Must not know a protocol's fields: a `BlockWriter` with a shape makes the records.
"""

from __future__ import annotations

from collections.abc import Iterable

from app.openai.answer import RunGroup
from app.openai.blocks import BlockWriter
from app.openai.choice import ChoiceRun
from app.stream_response import HotResponse
from app.text.plan import OutputPlan
from mocker_core.request import RequestId


class Follower:
    """`skip_records`: how many records, from the stream's first on, the reader has already."""

    __slots__ = ("_skip_records", "response", "writer")

    def __init__(self, response: HotResponse, writer: BlockWriter, skip_records: int = 0) -> None:
        self.response = response
        self.writer = writer
        self._skip_records = skip_records

    def push(self, records: Iterable[bytes], plan_ms: float | None = None) -> None:
        """Queue records for the next flush. `plan_ms`: the engine time of the token they come from."""
        for record in records:
            if self._skip_records:
                self._skip_records -= 1
                continue
            if plan_ms is not None and self.response.plan_ms is None:
                self.response.plan_ms = plan_ms
            self.response.push(record)


class EventRun(ChoiceRun):
    """Its followers may come and go while it runs; each gets every token from where it is."""

    __slots__ = ("followers",)

    def __init__(
        self, group: RunGroup, request_id: RequestId, index: int, plan: OutputPlan, num_prompt_tokens: int
    ) -> None:
        super().__init__(group, request_id, index, plan, num_prompt_tokens)
        self.followers: list[Follower] = []

    @property
    def cut(self) -> bool:
        """Whether it ended before its text did."""
        return self.finish_reason in ("length", "content_filter", "abort")

    def token(self, token_id: int | None, end_ms: float) -> None:
        # Hot: once per token.
        self._count(end_ms)
        if token_id is not None:
            for follower in self.followers:
                follower.push(follower.writer.token(token_id), end_ms)

    def _render_last(self, token_id: int | None, end_ms: float) -> None:
        if self.generated == 0:
            self.answer.first_output()
        for follower in self.followers:
            if token_id is not None:
                follower.push(follower.writer.token(token_id), end_ms)
            follower.push(follower.writer.finish(complete=not self.cut), end_ms)
