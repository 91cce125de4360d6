"""Puts the timeline's tracker into a server's state."""

from __future__ import annotations

from app.pd.service import pd_service
from app.state import AppState
from app.timeline.explain import TimelineExplainer
from app.timeline.tracker import STATE_KEY, RequestTracker
from mocker_core.request import HandoffId


def install_timeline(state: AppState) -> None:
    """Needs the handoffs installed before."""
    book = pd_service(state).book

    def activated_ms(handoff_id: HandoffId) -> float | None:
        record = book.find(handoff_id)
        if record is None:
            return None
        return next(
            (at_ms for at_ms, event in reversed(record.timeline) if event.startswith("activate")), None
        )

    tracker = RequestTracker(state.engine.now_ms, state.settings.timeline_requests, activated_ms)
    state.extras[STATE_KEY] = tracker
    state.explainer = TimelineExplainer(tracker)
    # First, so that a client's own request is complete in its record when its answer is put together.
    state.observers.insert(0, tracker)
    state.dispatcher.add_observer(tracker)
    if state.settings.otlp_endpoint is not None:
        from app.timeline.otel import SpanExport, otlp_provider

        tracker.listeners.append(SpanExport(otlp_provider(state.settings.otlp_endpoint), state.engine.now_ms))
