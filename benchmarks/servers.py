"""Starts and stops the measured servers as processes, and reads their CPU time and memory from /proc.

Owns pinning, ports and the wait for /health. Linux only. Must not know what is measured.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parent.parent
SERVER_CPU = 0
CLIENT_CPU = 1

# Quiet and roomy: the benchmark's own limits are never the scheduler's.
OUR_FLAGS = (
    "--disable-log-requests",
    "--disable-uvicorn-access-log",
    "--uvicorn-log-level=warning",
    "--max-num-seqs=4096",
    "--max-num-batched-tokens=262144",
)
# Passes of no modelled time: the loop gets a turn after each, so that each token is a write of its own.
EACH_PASS = '--timing-model={"type": "fixed", "prefill_ms": 0, "decode_ms": 0}'
# Passes much shorter than they cost: the engine is behind its plan all the time, and events share writes.
FULL_SPEED = "--speedup-ratio=1000000"


def pin(cpu: int) -> None:
    """Keep this process on one CPU, where the machine has at least two."""
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, {cpu})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


class ServerProcess(AbstractContextManager["ServerProcess"]):
    """One server, from start to stop. `started_s`: from the start of the process to a 200 on /health."""

    def __init__(self, command: Sequence[str], *, wait_s: float = 60.0) -> None:
        self.port = free_port()
        self._command = [part.replace("{port}", str(self.port)) for part in command]
        self._wait_s = wait_s
        self.started_s = 0.0

    def __enter__(self) -> ServerProcess:
        began_s = time.monotonic()
        self._process = subprocess.Popen(
            self._command,
            cwd=ROOT,
            preexec_fn=lambda: pin(SERVER_CPU),
            # As for a user, whose second start finds compiled modules.
            env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        while not self._healthy():
            waited_s = time.monotonic() - began_s
            if self._process.poll() is not None or waited_s > self._wait_s:
                self._stop()
                raise RuntimeError(
                    f"{' '.join(self._command)} gave no 200 on /health after {waited_s:.1f} s."
                )
            time.sleep(0.005)
        self.started_s = time.monotonic() - began_s
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def cpu_s(self) -> float:
        """Seconds of CPU that all its threads have used."""
        total_ns = 0
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            try:
                total_ns += int((task / "schedstat").read_text().split()[0])
            except FileNotFoundError:  # the thread ended, or the kernel keeps no such figures
                continue
        return total_ns / 1e9 if total_ns else self._cpu_by_ticks_s()

    def rss_bytes(self) -> int:
        """Resident memory, in bytes."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError("The server has no resident memory: it ended.")

    def _cpu_by_ticks_s(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _healthy(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2.0) as client:
                client.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                return client.recv(64).startswith(b"HTTP/1.1 200")
        except OSError:
            return False

    def _stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()


def floor(*flags: str) -> ServerProcess:
    """The plain-ASGI floor, not started yet."""
    return ServerProcess([sys.executable, "-m", "benchmarks.floor_app", "--port", "{port}", *flags])


def ours(*flags: str) -> ServerProcess:
    """Our server as a user starts it, quiet; not started yet."""
    command = [sys.executable, "-m", "app.cli", "serve", "--host=127.0.0.1", "--port", "{port}"]
    return ServerProcess([*command, *OUR_FLAGS, *flags])


def ours_measured(lateness_file: Path, *flags: str) -> ServerProcess:
    """Our server with every token's lateness counted in a `LatenessMap`; not started yet."""
    command = [sys.executable, "-m", "benchmarks.measured_server", str(lateness_file)]
    return ServerProcess([*command, "--host=127.0.0.1", "--port", "{port}", *OUR_FLAGS, *flags])
