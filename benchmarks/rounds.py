"""What every benchmark needs: its options, one loaded window of one server, and taking turns.

Owns the request bodies. Must not know a benchmark's figures.
"""

from __future__ import annotations

import http.client
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.load import PATH, LoadProcess, LoadResult, LoadSpec
from benchmarks.servers import FULL_SPEED, ServerProcess, ours

STREAM_TOKENS = 128
PLAIN_TOKENS = 16
_START_UP_S = 0.7  # of the load generator's process
_WARM_UP_S = 0.7


@dataclass(frozen=True, slots=True)
class Options:
    """How long and how often. `traces` and `baseline` are of the core benchmark."""

    quick: bool = False
    rounds: int = 3
    window_s: float = 3.0
    streams: tuple[int, ...] = ()
    trace: Path | None = None
    baseline: str | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sample:
    """One window of load on one server."""

    load: LoadResult
    cpu_s: float

    @property
    def responses_per_s(self) -> float:
        return self.load.responses / self.load.window_s

    @property
    def tokens(self) -> float:
        """Events of the window that carry a token; every answer has `STREAM_TOKENS` of them."""
        return self.load.events * STREAM_TOKENS / self.events_per_response

    @property
    def tokens_per_s(self) -> float:
        return self.tokens / self.load.window_s

    @property
    def events_per_response(self) -> float:
        """Events of an answer. Raises RuntimeError if there was none, or if they differ."""
        shapes = [float(shape) for shape in self.load.shapes]
        if len(shapes) != 1:
            raise RuntimeError(f"Answers have {shapes or 'no'} events; all must have the same number.")
        return shapes[0]


def chat_body(tokens: int, *, stream: bool) -> str:
    """A small chat request for exactly `tokens` tokens."""
    request = {
        "model": "mocker",
        "messages": [{"role": "user", "content": "Say something about the sea."}],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": stream,
    }
    return json.dumps(request, separators=(",", ":"))


def closed_window(server: ServerProcess, body: str, clients: int, window_s: float) -> Sample:
    """`clients` that ask again as soon as they are answered, for `window_s` after a warm-up."""
    start_at_s = time.monotonic() + _START_UP_S
    from_at_s = start_at_s + _WARM_UP_S
    load = LoadProcess(
        LoadSpec(
            port=server.port,
            body=body,
            mode="closed",
            clients=clients,
            start_at_s=start_at_s,
            from_at_s=from_at_s,
            to_at_s=from_at_s + window_s,
        )
    )
    sleep_until(from_at_s)
    cpu_s = server.cpu_s()
    sleep_until(from_at_s + window_s)
    cpu_s = server.cpu_s() - cpu_s
    result = load.result()
    if result.errors:
        raise RuntimeError(f"{result.errors} requests failed; the first: {result.first_error}")
    return Sample(result, cpu_s)


def sleep_until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.monotonic()))


def in_turn(
    rounds: int, measure_ours: Callable[[], Sample], measure_reference: Callable[[], Sample]
) -> tuple[list[Sample], list[Sample]]:
    """A B, B A, A B, ...: both see the same minutes of a shared machine."""
    ours_samples: list[Sample] = []
    reference_samples: list[Sample] = []
    for index in range(rounds):
        if index % 2 == 0:
            ours_samples.append(measure_ours())
            reference_samples.append(measure_reference())
        else:
            reference_samples.append(measure_reference())
            ours_samples.append(measure_ours())
    return ours_samples, reference_samples


@contextmanager
def recorded_floor_flags() -> Iterator[list[str]]:
    """Flags that make the floor send the very bytes that our server sends."""
    with TemporaryDirectory() as folder:
        stream, body = Path(folder, "stream"), Path(folder, "body")
        with ours(FULL_SPEED) as server:
            stream.write_bytes(_answer(server.port, chat_body(STREAM_TOKENS, stream=True)))
            body.write_bytes(_answer(server.port, chat_body(PLAIN_TOKENS, stream=False)))
        yield ["--stream-file", str(stream), "--body-file", str(body)]


def _answer(port: int, body: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", PATH, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.read()
    connection.close()
    if response.status != 200:
        raise RuntimeError(f"The server answered {response.status}: {answer[:300]!r}")
    return answer


def median(values: list[float]) -> float:
    return statistics.median(values)


def say(text: str) -> None:
    """Progress, apart from the table."""
    print(text, file=sys.stderr, flush=True)
