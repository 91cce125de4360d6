"""`mocker demo disagg` as a person runs it: the printed line works, the lane shows, Ctrl-C ends all."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import httpx
import pytest

pytestmark = pytest.mark.e2e


class Demo:
    def __init__(self, *flags: str) -> None:
        command: Sequence[str] = [sys.executable, "-m", "app.cli", "demo", "disagg", *flags]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", bufsize=1
        )
        self.text = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_for(self, pattern: str, within_s: float = 60.0) -> re.Match[str]:
        ends_s = time.monotonic() + within_s
        while (found := re.search(pattern, self.text)) is None:
            assert time.monotonic() < ends_s, f"{pattern!r} is not in {self.text!r}"
            time.sleep(0.02)
        return found

    def end(self, number: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Its exit status, once it has ended and all its words are read."""
        status = self.process.wait(60)
        self._reader.join(10)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.text += line


def is_listening(url: str) -> bool:
    try:
        httpx.get(f"{url}/health", timeout=2)
    except httpx.TransportError:
        return False
    return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_printed_line_works_the_lane_shows_and_a_signal_ends_all(number: signal.Signals) -> None:
    demo = Demo("--speedup-ratio", "100")
    try:
        url, body = demo.wait_for(r"curl -N (\S+) .* -d '(.*)'").groups()
        answer = httpx.post(url, content=body, headers={"content-type": "application/json"}, timeout=30)
        assert answer.text.endswith("data: [DONE]\n\n")
        demo.wait_for(r"prefill-1 ═+▶ decode-1 +done")
        servers = re.findall(r"^  \S+ +(http://\S+)$", demo.text, re.MULTILINE)
        assert len(servers) == 3
    finally:
        status = demo.end(number)
    assert status == 0
    assert "Stopped." in demo.text
    assert not any(is_listening(server) for server in servers)


def test_flag_that_the_servers_refuse_ends_the_demo_with_their_words() -> None:
    demo = Demo("--block-size", "1")
    assert demo.wait() == 1
    assert re.search("(prefill|decode)-1 ended with status 2: .*block", demo.text)


def test_killed_demo_leaves_no_server_behind() -> None:
    demo = Demo()
    try:
        demo.wait_for("Ctrl-C ends all")
        servers = re.findall(r"^  \S+ +(http://\S+)$", demo.text, re.MULTILINE)
        assert [is_listening(server) for server in servers] == [True] * 3
    finally:
        demo.end(signal.SIGKILL)
    ends_s = time.monotonic() + 30
    while any(is_listening(server) for server in servers):
        assert time.monotonic() < ends_s, f"one of {servers} outlived the demo"
        time.sleep(0.05)
