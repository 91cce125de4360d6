"""The command `mocker`: finds the subcommand, imports only that one, and turns mistakes into one sentence.

Knows the subcommands by name and nothing of what they do. Exit status: 0 well, 1 a run that failed, 2 a
mistake of the caller's.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from app import __version__
from mocker_core.errors import ArgumentError

# name: (module with main(argv) -> exit status, line of help)
_SUBCOMMANDS: dict[str, tuple[str, str]] = {
    "replay": ("app.replay.cli", "replay a trace through the engine in virtual time"),
    "compare": ("app.replay.compare", "say what changed between two replay reports"),
    "route": ("app.route.cli", "route requests over prefill and decode servers"),
    "demo": ("app.route.demo", "start a prefill and a decode server with a router"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; the exit status. Never shows a traceback for a caller's mistake."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(words)
    except ArgumentError as error:
        return _fail(str(error))
    except BrokenPipeError:
        # The reader of our output went away (`mocker serve --help | head`).
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130


def _run(words: list[str]) -> int:
    command = words[0] if words else "--help"
    if command in ("-h", "--help", "help"):
        sys.stdout.write(_usage())
        return 0 if words else 2
    if command in ("-V", "--version", "version"):
        sys.stdout.write(f"mocker {__version__}\n")
        return 0
    if command == "serve":
        return _serve(words[1:])
    if command in _SUBCOMMANDS:
        return _delegate(command, words[1:])
    near = get_close_matches(command, ["serve", *_SUBCOMMANDS], n=1)
    hint = f"Did you mean {near[0]}?" if near else f"The commands are serve, {', '.join(_SUBCOMMANDS)}."
    raise ArgumentError(f"{command} is not a command of mocker. {hint}")


def _serve(words: list[str]) -> int:
    from app.settings.load import load_settings

    loaded = load_settings(words, os.environ)
    if loaded.settings is None:
        from app.settings.doc import serve_help

        sys.stdout.write(serve_help())
        return 0
    for notice in loaded.notices:
        line = json.dumps({"level": "warning", "message": notice})
        print(line if loaded.settings.log_format == "json" else f"mocker: {notice}", file=sys.stderr)
    from app.serve import run

    return run(loaded.settings)


def _delegate(command: str, words: list[str]) -> int:
    module_name, _ = _SUBCOMMANDS[command]
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        return _fail(f"mocker {command} is not part of this version.")
    status: int = module.main(words)
    return status


def _usage() -> str:
    rows = [("serve", "serve the OpenAI API of a simulated engine"), *_described()]
    lines = "".join(f"  {name:<9} {text}\n" for name, text in rows)
    return (
        "usage: mocker COMMAND ...\n\n"
        f"{lines}\n"
        "`mocker COMMAND --help` says more; `mocker --version` names the version.\n"
    )


def _described() -> list[tuple[str, str]]:
    return [(name, text) for name, (_, text) in _SUBCOMMANDS.items()]


def _fail(sentence: str) -> int:
    print(f"mocker: error: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
