"""`mocker demo disagg`: prefill servers, decode servers and a router on free ports, and their lanes live.

Owns the child processes: whatever ends the demo ends them all. Must not know what the servers do inside.
"""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO, Any

import httpx

from app.route.demo_screen import Screen
from mocker_core.errors import ArgumentError

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 8.0
_REFRESH_S = 0.25
_TRY = '{"stream": true, "max_tokens": 64, "messages": [{"role": "user", "content": "Tell me a story."}]}'


class DemoError(Exception):
    """The demo can't go on; the text is one sentence."""


@dataclass(slots=True)
class Child:
    """One process of the demo; what it prints goes to `log`."""

    name: str
    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def main(argv: Sequence[str]) -> int:
    """Run the demo until Ctrl-C (0), or until one of its processes ends (1)."""
    args, serve_flags = _parser().parse_known_args(list(argv))
    for name in ("prefill", "decode"):
        if getattr(args, name) < 1:
            raise ArgumentError(f"--{name} is {getattr(args, name)}; it must be at least 1.")
    # A service manager's signal ends the demo as Ctrl-C does.
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with ExitStack() as stack:
            return _run(args, serve_flags, stack)
    except KeyboardInterrupt:
        print("\nStopped.")
        return 0
    except DemoError as error:
        print(f"mocker demo: {error}", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(args: argparse.Namespace, serve_flags: Sequence[str], stack: ExitStack) -> int:
    logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mocker-demo-")))
    demo = _Demo(logs)
    stack.callback(demo.stop)
    link = ["--kv-bytes-per-token", "131072", "--kv-transfer-bandwidth", "16"]
    roles = {"prefill": args.prefill, "decode": args.decode}
    for role, count in roles.items():
        for number in range(1, count + 1):
            demo.start_server(f"{role}-{number}", ["--disaggregation-mode", role, *link, *serve_flags])
    urls = {role: [child.url for child in demo.children if child.name.startswith(role)] for role in roles}
    client = stack.enter_context(httpx.Client(timeout=5.0, trust_env=False))
    demo.wait_healthy(client)
    router = demo.start_router(urls["prefill"], urls["decode"], args)
    demo.wait_healthy(client)
    print(_welcome(demo.children, router.url), flush=True)
    screen = Screen(sys.stdout)
    ends_s = None if args.seconds is None else time.monotonic() + args.seconds
    while ends_s is None or time.monotonic() < ends_s:
        demo.check_alive()
        screen.show(_lanes(client, router.url), {child.url: child.name for child in demo.children})
        time.sleep(_REFRESH_S)
    return 0


class _Demo:
    """The processes, in the order in which they were started."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self.children: list[Child] = []

    def start_server(self, name: str, flags: Sequence[str]) -> Child:
        port = _free_port()
        return self._start(
            name,
            port,
            ["serve", "--host", "127.0.0.1", "--port", str(port), "--uvicorn-log-level", "warning", *flags],
        )

    def start_router(self, prefill: Sequence[str], decode: Sequence[str], args: argparse.Namespace) -> Child:
        port = args.port or _free_port()
        words = ["route", "--prefill", *prefill, "--decode", *decode, "--policy", args.policy]
        return self._start("router", port, [*words, "--port", str(port)])

    def wait_healthy(self, client: httpx.Client) -> None:
        """Until every process answers 200 on /health. Raises DemoError if one ends or is too slow."""
        ends_s = time.monotonic() + _START_TIMEOUT_S
        for child in self.children:
            while not _is_healthy(client, child.url):
                self.check_alive()
                if time.monotonic() > ends_s:
                    raise DemoError(f"{child.name} did not get ready: {child.last_words()}")
                time.sleep(0.02)

    def check_alive(self) -> None:
        for child in self.children:
            status = child.process.poll()
            if status is not None:
                raise DemoError(f"{child.name} ended with status {status}: {child.last_words()}")

    def stop(self) -> None:
        """Terminate all, the router first, and kill what does not end in time."""
        for child in reversed(self.children):
            if child.process.poll() is None:
                child.process.terminate()
        ends_s = time.monotonic() + _STOP_TIMEOUT_S
        for child in self.children:
            try:
                child.process.wait(max(0.0, ends_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
            if child.process.stdin is not None:
                child.process.stdin.close()

    def _start(self, name: str, port: int, words: Sequence[str]) -> Child:
        path = self._logs / f"{name}.log"
        with path.open("wb") as log:
            process = _spawn([sys.executable, "-m", "app.route.demo_child", *words], log)
        child = Child(name, f"http://127.0.0.1:{port}", process, path)
        self.children.append(child)
        return child


def _spawn(command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    # A session of its own: Ctrl-C reaches the demo only, which then ends its children in order. The pipe is
    # never written to; its end tells the child that the demo is gone.
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )


def _is_healthy(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(f"{url}/health").status_code == 200
    except httpx.TransportError:
        return False


def _lanes(client: httpx.Client, url: str) -> dict[str, Any]:
    try:
        lanes: dict[str, Any] = client.get(f"{url}/admin/lanes").json()
    except (httpx.TransportError, ValueError):
        return {"open": 0, "ended": {}, "lanes": []}
    return lanes


def _welcome(children: Sequence[Child], router_url: str) -> str:
    rows = "\n".join(f"  {child.name:<12} {child.url}" for child in children)
    return f"""Disaggregated prefill and decode is up:
{rows}

Try it:
  curl -N {router_url}/v1/chat/completions -H 'Content-Type: application/json' -d '{_TRY}'

Ctrl-C ends all.
"""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="mocker demo",
        allow_abbrev=False,
        description="Start prefill and decode servers with a router on free ports and show what they do. "
        "Further flags are those of `mocker serve` and go to every server.",
    )
    parser.add_argument("what", choices=["disagg"], help="the demo to run")
    parser.add_argument("--prefill", type=int, default=1, metavar="N", help="prefill servers (%(default)s)")
    parser.add_argument("--decode", type=int, default=1, metavar="N", help="decode servers (%(default)s)")
    parser.add_argument("--port", type=int, default=0, help="the router's port (a free one)")
    parser.add_argument(
        "--policy", choices=["round_robin", "least_loaded"], default="least_loaded", help="(%(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=None, help="end by itself after so long")
    return parser
