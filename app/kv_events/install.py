"""Puts the KV event publisher into a server: settings, dispatcher, metrics, lifespan.

Must not know the wire format.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from app.kv_events.config import KvEventsConfig
from app.ops.metrics_json import add_section
from app.state import AppState

_PUBLISHER = "kv_events_publisher"


def install_kv_events(state: AppState) -> None:
    """Make the publisher if --kv-events-config wants one; nothing is opened yet. Raises ArgumentError."""
    config = KvEventsConfig.from_mapping(state.settings.kv_events_config)
    if not config.publishes:
        return
    # pyzmq is loaded only where something is published.
    from app.kv_events.publisher import ZmqKvEventPublisher

    args = state.engine.args
    publisher = ZmqKvEventPublisher(config, args.dp_size, args.block_size)
    state.extras[_PUBLISHER] = publisher
    state.dispatcher.add_observer(publisher)

    def figures(_: AppState) -> list[dict[str, Any]]:
        return [dataclasses.asdict(publisher.counts(rank)) for rank in range(args.dp_size)]

    add_section(state, _PUBLISHER, figures)


def start_kv_events(state: AppState) -> None:
    """Open the endpoints. Raises ArgumentError if one cannot be had."""
    publisher = state.extras.get(_PUBLISHER)
    if publisher is not None:
        publisher.start()


async def stop_kv_events(state: AppState) -> None:
    """Send what is left and close the endpoints."""
    publisher = state.extras.get(_PUBLISHER)
    if publisher is not None:
        await asyncio.to_thread(publisher.stop)
