"""The load generator: many connections in one process of its own, so that the client is not the limit.

Owns raw HTTP over asyncio protocols on uvloop, and counting. Events are counted by single bytes (every event
has two line feeds without a carriage return, every HTTP chunk two carriage returns), so it never parses.
Takes a `LoadSpec` as JSON in argv, writes a `LoadResult` as JSON to stdout.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import subprocess
import sys
import time
from array import array
from dataclasses import dataclass, field
from typing import Any

from benchmarks.servers import CLIENT_CPU, ROOT, pin

PATH = "/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSpec:
    """What to send. `streams` and `storm` are paced mode's: opened evenly over their spread, held to the end.

    Instants (`*_at_s`) are on the system's monotonic clock; only the window between `from_at_s` and
    `to_at_s` counts.
    """

    port: int
    body: str
    mode: str  # closed | held
    clients: int
    from_at_s: float
    to_at_s: float
    start_at_s: float = 0.0
    spread_s: float = 0.0
    storm_clients: int = 0
    storm_at_s: float = 0.0
    storm_spread_s: float = 0.0


@dataclass(slots=True)
class LoadResult:
    """Counts within the window. Latencies, gaps in ms; `sends`: HTTP chunks; `shapes`: events a response."""

    window_s: float = 0.0
    responses: int = 0
    errors: int = 0
    events: int = 0
    sends: int = 0
    received_bytes: int = 0
    latency_p50_ms: float | None = None
    latency_p99_ms: float | None = None
    shapes: dict[str, int] = field(default_factory=dict)
    sends_per_response: float = 0.0
    client_cpu_share: float = 0.0
    open_streams: int = 0
    mean_itl_ms: float | None = None
    gap_p50_ms: float | None = None
    gap_p99_ms: float | None = None
    first_error: str = ""


class Counter:
    """What all connections of one run add to."""

    def __init__(self, spec: LoadSpec) -> None:
        self.spec = spec
        self.result = LoadResult()
        self.latencies_ms = array("d")
        self.gaps_ms = array("d")
        self.in_window = False
        self.stopping = False
        request = f"POST {PATH} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        body = spec.body.encode()
        self.request = f"{request}Content-Length: {len(body)}\r\n\r\n".encode() + body

    def failed(self, why: str) -> None:
        if not self.stopping:
            self.result.errors += 1
            self.result.first_error = self.result.first_error or why


class ClosedStream(asyncio.Protocol):
    """One client that streams answer after answer over one connection."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._transport: asyncio.Transport
        self._begun = False
        self._returns = 0
        self._events_x2 = 0
        self._tail = b""
        self._sent_s = 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._counter.failed("The connection was closed.")

    def data_received(self, data: bytes) -> None:
        # Hot: once per read.
        counter = self._counter
        if not self._begun:
            self._begun = True
            if not data.startswith(b"HTTP/1.1 200"):
                counter.failed(data.decode(errors="replace")[:300])
            # Later header lines, if the head is split, would count as sends: servers write it at once.
            self._returns -= data.count(b"\r", 0, data.find(b"\r\n\r\n") + 4)
        returns = data.count(b"\r")
        events_x2 = data.count(b"\n") - returns
        self._returns += returns
        self._events_x2 += events_x2
        if counter.in_window:
            counter.result.events += events_x2
            counter.result.sends += returns
            counter.result.received_bytes += len(data)
        self._tail = data[-5:] if len(data) >= 5 else (self._tail + data)[-5:]
        if self._tail == b"0\r\n\r\n":
            self._end()

    def _end(self) -> None:
        counter = self._counter
        if counter.in_window:
            result = counter.result
            result.responses += 1
            shape = str(self._events_x2 / 2)
            result.shapes[shape] = result.shapes.get(shape, 0) + 1
            result.sends_per_response += (self._returns - 2) / 2
            counter.latencies_ms.append((time.monotonic() - self._sent_s) * 1000.0)
        if not counter.stopping:
            self._send()

    def _send(self) -> None:
        self._begun = False
        self._returns = self._events_x2 = 0
        self._sent_s = time.monotonic()
        self._transport.write(self._counter.request)


class ClosedPlain(asyncio.Protocol):
    """One client that asks for one unstreamed answer after the other over one connection."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._buffer = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        self._counter.failed("The connection was closed.")

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        head = buffer.find(b"\r\n\r\n")
        at = buffer.find(b"content-length: ", 0, head)
        if head < 0 or at < 0 or len(buffer) < head + 4 + int(buffer[at + 16 : buffer.index(b"\r", at)]):
            self._buffer = buffer
            return
        self._buffer = b""
        counter = self._counter
        if not buffer.startswith(b"HTTP/1.1 200"):
            counter.failed(buffer.decode(errors="replace")[:300])
        if counter.in_window:
            counter.result.responses += 1
            counter.result.received_bytes += len(buffer)
            counter.latencies_ms.append((time.monotonic() - self._sent_s) * 1000.0)
        if not counter.stopping:
            self._send()

    def _send(self) -> None:
        self._sent_s = time.monotonic()
        self._transport.write(self._counter.request)


class HeldStream(asyncio.Protocol):
    """One stream that is read until the run ends; notes when its events came."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._begun = False
        self.first_s = 0.0
        self.last_s = 0.0
        self.events_after_first = 0.0

    def connection_made(self, transport: Any) -> None:
        transport.write(self._counter.request)

    def connection_lost(self, error: Exception | None) -> None:
        self._counter.failed("A held stream was closed.")

    def data_received(self, data: bytes) -> None:
        # Hot: once per read.
        counter = self._counter
        if not self._begun:
            self._begun = True
            if not data.startswith(b"HTTP/1.1 200"):
                counter.failed(data.decode(errors="replace")[:300])
        events = (data.count(b"\n") - data.count(b"\r")) / 2
        if not counter.in_window or not events:
            return
        now_s = time.monotonic()
        if self.first_s:
            self.events_after_first += events
            counter.gaps_ms.append((now_s - self.last_s) * 1000.0)
        else:
            self.first_s = now_s
        self.last_s = now_s
        counter.result.events += round(2 * events)


async def run_load(spec: LoadSpec) -> LoadResult:
    """Run one load to its end."""
    counter = Counter(spec)
    loop = asyncio.get_running_loop()
    kind: Any = HeldStream if spec.mode == "held" else ClosedStream
    if spec.mode == "closed" and '"stream":true' not in spec.body:
        kind = ClosedPlain
    opened: list[Any] = []

    async def open_group(count: int, at_s: float, spread_s: float) -> None:
        for index in range(count):
            delay_s = at_s + spread_s * index / count - time.monotonic()
            if delay_s > 0:
                await asyncio.sleep(delay_s)
            opened.append(await loop.create_connection(lambda: kind(counter), "127.0.0.1", spec.port))

    groups = [
        asyncio.ensure_future(open_group(spec.clients, spec.start_at_s, spec.spread_s)),
        asyncio.ensure_future(open_group(spec.storm_clients, spec.storm_at_s, spec.storm_spread_s)),
    ]
    await asyncio.sleep(spec.from_at_s - time.monotonic())
    began_s, cpu_s = time.monotonic(), time.process_time()
    counter.in_window = True
    await asyncio.sleep(spec.to_at_s - time.monotonic())
    counter.in_window, counter.stopping = False, True
    ended_s = time.monotonic()
    counter.result.client_cpu_share = (time.process_time() - cpu_s) / (ended_s - began_s)
    for group in groups:
        group.cancel()
    for transport, _ in opened:
        transport.abort()
    return _finish(counter, [protocol for _, protocol in opened], ended_s - began_s)


def _finish(counter: Counter, protocols: list[Any], window_s: float) -> LoadResult:
    result = counter.result
    result.window_s = window_s
    result.events //= 2
    result.sends //= 2
    if result.responses:
        result.sends_per_response /= result.responses
    result.latency_p50_ms, result.latency_p99_ms = _quantiles(counter.latencies_ms)
    result.gap_p50_ms, result.gap_p99_ms = _quantiles(counter.gaps_ms)
    streams = [protocol for protocol in protocols if isinstance(protocol, HeldStream)]
    result.open_streams = len(streams)
    events = sum(stream.events_after_first for stream in streams)
    if events:
        result.mean_itl_ms = sum(stream.last_s - stream.first_s for stream in streams) / events * 1000.0
    return result


def _quantiles(values: array[float]) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    ordered = sorted(values)
    last = len(ordered) - 1
    return ordered[last // 2], ordered[min(last, int(len(ordered) * 0.99))]


class LoadProcess:
    """A load that runs in a process of its own. `result()` waits for its end."""

    def __init__(self, spec: LoadSpec) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.load", json.dumps(dataclasses.asdict(spec))],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )

    def result(self) -> LoadResult:
        output, _ = self._process.communicate(timeout=300)
        if self._process.returncode:
            raise RuntimeError(f"The load generator ended with status {self._process.returncode}.")
        return LoadResult(**json.loads(output))


def main() -> None:
    import resource

    import uvloop

    pin(CLIENT_CPU)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gc.disable()
    result = uvloop.run(run_load(LoadSpec(**json.loads(sys.argv[1]))))
    print(json.dumps(dataclasses.asdict(result)))


if __name__ == "__main__":
    main()
