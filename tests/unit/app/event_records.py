"""Reads streams whose records have an `event:` line, and checks their framing."""

from __future__ import annotations

import json
from typing import Any


def read_events(body: bytes) -> list[dict[str, Any]]:
    """Every record's JSON; its type must be that of the event line, and nothing else may be in the stream."""
    assert b"\r" not in body
    assert b"[DONE]" not in body
    assert body == b"" or body.endswith(b"\n\n")
    events = []
    for record in body.decode().split("\n\n")[:-1]:
        named, data = record.split("\n")
        event: dict[str, Any] = json.loads(data.removeprefix("data: "))
        assert named == f"event: {event['type']}"
        events.append(event)
    return events


def kinds(events: list[dict[str, Any]]) -> list[str]:
    """The events' types; a run of deltas of one type once."""
    found: list[str] = []
    for event in events:
        kind = event["type"]
        if not (kind.endswith("delta") and found and found[-1] == kind):
            found.append(kind)
    return found
