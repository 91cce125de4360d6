from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mocker_core.events import AdmissionEvent, BlocksCleared, OutputSignal, SourceHeld
from mocker_core.metrics import MockerMetrics
from mocker_core.request import HandoffId, RequestId
from mocker_core.sched.output import EnginePassResult, FinishedRequest

METRICS = MockerMetrics(0, 0, 6, 0.0, 0, 0, 0)
R = RequestId("r")
EMPTY = EnginePassResult(0.0, 0.0, [], METRICS, scheduled=False)


def test_pass_without_any_effect_made_no_progress() -> None:
    assert not EMPTY.made_progress(METRICS)


@pytest.mark.parametrize(
    "change",
    [
        {"scheduled": True},
        {"tokens": [(R, 7)]},
        {"ends": [OutputSignal(R, None, True)]},
        {"admissions": [AdmissionEvent(R, 0)]},
        {"lifecycle": [SourceHeld(HandoffId("h"), R, None, 4)]},
        {"kv_events": (BlocksCleared(0),)},
        {"metrics": METRICS._replace(waiting_requests=1)},
    ],
)
def test_any_effect_is_progress(change: dict[str, Any]) -> None:
    assert replace(EMPTY, **change).made_progress(METRICS)


def test_rejected_requests_did_not_complete() -> None:
    facts = [FinishedRequest(R, rejected, None, None, None, 0, 0, 0) for rejected in (True, False, False)]
    assert replace(EMPTY, finished=facts).completed == 2
