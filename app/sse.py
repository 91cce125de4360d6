"""Bytes of server-sent events as OpenAI streams write them: LF only, `data:` records, `[DONE]` at the end.

Never an `id:` or `retry:` line: the OpenAI SDKs parse every dispatched record as JSON.
"""

from __future__ import annotations

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)


def data(payload: bytes) -> bytes:
    """One record. `payload` is JSON on one line."""
    return b"data: " + payload + b"\n\n"


def with_field(record: bytes, name: bytes, value: bytes) -> bytes:
    """A record that holds an object, with one more field at its end. `value` is JSON."""
    return record.removesuffix(b"}\n\n") + b',"' + name + b'":' + value + b"}\n\n"
