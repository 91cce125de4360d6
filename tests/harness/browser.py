"""Headless Chromium through its DevTools protocol, synchronously: open a page, run script, look, press keys.

Skips by name where there is no Chromium. Knows nothing of the pages that it shows.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-port=0",
)


def find_chromium() -> str | None:
    """The path of a Chromium, or None."""
    return next((path for name in _NAMES if (path := shutil.which(name)) is not None), None)


class Browser:
    """One process with one page. `problems` are console errors, uncaught exceptions and failed loads."""

    def __init__(self, *, width: int = 1440, height: int = 900) -> None:
        path = find_chromium()
        if path is None:
            pytest.skip(f"no Chromium found (looked for {', '.join(_NAMES)})")
        self._path = path
        self._size = (width, height)
        self._open = ExitStack()
        self._next_id = 0
        self.problems: list[str] = []
        self.requested: list[str] = []

    def __enter__(self) -> Browser:
        self._profile = tempfile.TemporaryDirectory(prefix="mocker-browser-", ignore_cleanup_errors=True)
        command = [self._path, *_FLAGS, f"--user-data-dir={self._profile.name}", "about:blank"]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._socket = self._connect()
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.send(f"{domain}.enable")
            self.resize(*self._size)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._open.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._profile.cleanup()

    def _connect(self) -> ClientConnection:
        address = Path(self._profile.name) / "DevToolsActivePort"
        ends_s = time.monotonic() + 60
        while not address.exists() or len(address.read_text().split()) < 2:
            assert self._process.poll() is None, "Chromium ended at its start"
            assert time.monotonic() < ends_s, "Chromium did not get ready"
            time.sleep(0.02)
        port, path = address.read_text().split()
        with connect(f"ws://127.0.0.1:{port}{path}", max_size=None) as root:
            root.send(json.dumps({"id": 1, "method": "Target.getTargets"}))
            targets = json.loads(root.recv(30))["result"]["targetInfos"]
        target = next(target["targetId"] for target in targets if target["type"] == "page")
        page = connect(f"ws://127.0.0.1:{port}/devtools/page/{target}", max_size=None, ping_interval=None)
        return self._open.enter_context(page)

    def send(self, method: str, **params: Any) -> Any:
        """One protocol command; its result. Events that come meanwhile are noted."""
        self._next_id += 1
        self._socket.send(json.dumps({"id": self._next_id, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(60))
            if message.get("id") == self._next_id:
                assert "error" not in message, message["error"]
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = params["exceptionDetails"]
                self.problems.append(details.get("exception", {}).get("description") or details["text"])
            case "Runtime.consoleAPICalled" if params["type"] in ("error", "assert"):
                self.problems.append(" ".join(str(arg.get("value")) for arg in params["args"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.problems.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )

    def prefer(self, **features: str) -> None:
        """Emulate media features, as prefers_color_scheme="dark"."""
        found = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.send("Emulation.setEmulatedMedia", features=found)

    def open(self, url: str) -> None:
        """Load a page and wait until its script may run."""
        self.send("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """The value of an expression (a promise is awaited)."""
        answer = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str, seconds: float = 20.0) -> Any:
        """Poll an expression until it is true; its value."""
        ends_s = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < ends_s, f"never came true: {script}; problems: {self.problems}"
            time.sleep(0.05)
        return value

    def press(self, key: str, *, code: str = "", number: int = 0, text: str = "") -> None:
        """One key, down and up."""
        common = {"key": key, "code": code or key, "windowsVirtualKeyCode": number}
        down = {"text": text} if text else {}
        self.send("Input.dispatchKeyEvent", type="keyDown", **common, **down)
        self.send("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        """Save what is seen, or with `whole` all of the page, as PNG."""
        answer = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))


def until(condition: Callable[[], object], what: str, seconds: float = 20.0) -> None:
    """Wait until a condition on the server's side holds."""
    ends_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_s, f"never came true: {what}"
        time.sleep(0.02)
