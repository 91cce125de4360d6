"""A command of `mocker` that ends with its starter: `python -m app.route.demo_child serve ...`.

The starter keeps the other end of this process's stdin open. The system closes it however the starter
ends, `kill -9` too, so that no server is left behind. Must not know which command it runs.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from app.cli import main

_STDIN = 0
_STOP_TIMEOUT_S = 8.0


def end_with_stdin() -> None:
    """End this process as a service manager would once nobody holds the other end of stdin."""
    threading.Thread(target=_wait_and_end, name="end-with-stdin", daemon=True).start()


def _wait_and_end() -> None:
    # os.read and not sys.stdin: a thread inside a buffered reader would block the interpreter's exit.
    while os.read(_STDIN, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_STOP_TIMEOUT_S)
    os._exit(1)


if __name__ == "__main__":
    end_with_stdin()
    sys.exit(main())
