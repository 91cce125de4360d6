"""Puts the counters of /metrics into a server's state."""

from __future__ import annotations

from app.metrics.collect import Collector
from app.metrics.counters import MetricsCounters
from app.state import AppState
from app.timeline.tracker import tracker_of

STATE_KEY = "metrics"


def install_metrics(state: AppState) -> None:
    """Needs the tracker and the handoffs installed before."""
    args = state.engine.args
    counters = MetricsCounters(args.dp_size, state.max_model_len, prefix_caching=args.enable_prefix_caching)
    tracker_of(state).listeners.append(counters)
    state.extras[STATE_KEY] = Collector(state, counters)


def collector_of(state: AppState) -> Collector:
    collector: Collector = state.extras[STATE_KEY]
    return collector
