"""Answers that were written before: which request gets one from the dataset or the fixtures, in which form.

Owns the file of --content-path while the server runs. Must not know plans or one route's request; the
lookup is one call that every generating route makes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from app.content.dataset import Dataset, DatasetError
from app.content.fixtures import FixtureAnswer, FixtureError, FixtureFault, FixtureRequest, FixtureStore
from app.errors import ApiError
from app.openai.answer_plan import CannedAnswer
from app.ops.metrics_json import add_section
from app.settings import ServeSettings
from app.state import AppState
from app.text.chat_template import last_user_text, message_text
from mocker_core.errors import ArgumentError

logger = logging.getLogger("mocker.content")

_CANNED = "canned"
_LOOK_EVERY_S = 0.2


class CannedContent:
    """The loaded file. Raises ArgumentError if it cannot be used."""

    def __init__(self, settings: ServeSettings) -> None:
        path = Path(settings.content_path or "")
        self._dataset: Dataset | None = None
        self._fixtures: FixtureStore | None = None
        self._looked_at_s = 0.0
        try:
            if settings.content == "dataset":
                self._dataset = Dataset.load(path)
            else:
                self._fixtures = FixtureStore.load(path)
        except (DatasetError, FixtureError) as error:
            raise ArgumentError(str(error)) from None
        self.found = self.missed = 0

    def find(
        self,
        model: str,
        user_text: str,
        *,
        tool_result: str | None = None,
        headers: Mapping[bytes, bytes],
    ) -> CannedAnswer | None:
        """The answer to a request, None if there is none. Raises the ApiError that a fixture asks for."""
        answer: CannedAnswer | None = None
        if self._dataset is not None:
            text = self._dataset.answer_for(user_text)
            answer = None if text is None else CannedAnswer(text, repeat=True)
        elif self._fixtures is not None:
            self._reload()
            names = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
            fixture = self._fixtures.answer_for(FixtureRequest(model, user_text, tool_result, names))
            answer = None if fixture is None else _from_fixture(fixture)
        self.found += answer is not None
        self.missed += answer is None
        return answer

    def state(self) -> dict[str, Any]:
        """What /admin/metrics and /admin/config show."""
        source = self._dataset or self._fixtures
        assert source is not None
        return {
            "path": str(source.path),
            "entries": len(source),
            "found": self.found,
            "missed": self.missed,
            "last_error": None if self._fixtures is None else self._fixtures.last_error,
        }

    def close(self) -> None:
        if self._dataset is not None:
            self._dataset.close()

    def _reload(self) -> None:
        """Look at the file now and then; a wrong one is logged, and the last good one stays."""
        store, now_s = self._fixtures, time.monotonic()
        if store is None or now_s - self._looked_at_s < _LOOK_EVERY_S:
            return
        self._looked_at_s = now_s
        error_before = store.last_error
        if store.reload_if_changed():
            logger.info("Read the fixtures in %s anew: %d.", store.path, len(store))
        elif store.last_error is not None and store.last_error != error_before:
            logger.error("The fixtures stay as they were: %s", store.last_error)


def install_canned(state: AppState) -> None:
    """Load the file of --content dataset or fixtures."""
    if state.settings.content in ("dataset", "fixtures"):
        content = state.extras[_CANNED] = CannedContent(state.settings)
        add_section(state, "content", lambda _: content.state())


def canned_of(state: AppState) -> CannedContent | None:
    content: CannedContent | None = state.extras.get(_CANNED)
    return content


def canned_text(
    state: AppState, model: str, prompt: str, headers: Mapping[bytes, bytes]
) -> CannedAnswer | None:
    """The canned answer to a text. Raises the ApiError that a fixture asks for."""
    content = canned_of(state)
    return None if content is None else content.find(model, prompt, headers=headers)


def canned_chat(
    state: AppState, model: str, messages: Sequence[Mapping[str, Any]], headers: Mapping[bytes, bytes]
) -> CannedAnswer | None:
    """The canned answer to a conversation in Chat's shape, by its last user message and tool result."""
    content = canned_of(state)
    if content is None:
        return None
    last = messages[-1]
    result = message_text(last) if last.get("role") in ("tool", "function") else None
    return content.find(model, last_user_text(messages), tool_result=result, headers=headers)


def _from_fixture(fixture: FixtureAnswer) -> CannedAnswer:
    delays = fixture.delays
    if fixture.error is not None:
        raise _fault(fixture.error, delays.ttft_ms)
    return CannedAnswer(
        fixture.text or "",
        fixture.reasoning,
        fixture.tool_calls,
        finish_reason=fixture.finish_reason,  # type: ignore[arg-type] # the file's reader checked it
        decides=True,
        delays_ms=(delays.ttft_ms, delays.itl_ms),
    )


def _fault(fault: FixtureFault, delay_ms: float) -> ApiError:
    return ApiError(
        fault.status,
        fault.message,
        param=fault.param,
        code=fault.code,
        err_type=fault.type,
        headers={"Retry-After": "1"} if fault.status in (429, 503) else None,
        delay_ms=delay_ms,
    )
