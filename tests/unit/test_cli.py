"""The command `mocker`: subcommands, exit statuses, and how mistakes are told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from app import __version__
from app.cli import main
from app.settings import ServeSettings
from mocker_core.errors import ArgumentError


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ServeSettings]]:
    """The settings that `mocker serve` would have started with."""
    for name in ("MOCKER_PORT", "MOCKER_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    received: list[ServeSettings] = []
    module = ModuleType("app.serve")

    def run(settings: ServeSettings) -> int:
        received.append(settings)
        return 0

    module.__dict__["run"] = run
    monkeypatch.setitem(sys.modules, "app.serve", module)
    yield received


def test_serve_hands_the_settings_over(served: list[ServeSettings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCKER_SEED", "9")
    assert main(["serve", "name", "--port", "0"]) == 0
    assert [(one.model, one.port, one.seed) for one in served] == [("name", 0, 9)]


def test_ignored_flags_are_told_in_one_line(
    served: list[ServeSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--dtype", "auto", "--enforce-eager"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "mocker: Accepted and ignored, as the mocker does not model them: --dtype, --enforce-eager."
    ]


def test_ignored_flags_are_told_as_json_where_the_log_is(
    served: list[ServeSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--dtype", "auto", "--log-format", "json"]) == 0
    assert json.loads(capsys.readouterr().err)["level"] == "warning"


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (["serv"], "Did you mean serve?"),
        (["xyzzy"], "The commands are serve, replay"),
        (["serve", "--prot", "1"], "Did you mean --port?"),
        (["serve", "--port", "x"], "--port is 'x'"),
    ],
)
def test_mistake_is_one_sentence_and_status_2(
    argv: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("mocker: error: ")
    assert len(shown.err.splitlines()) == 1
    assert part in shown.err


def test_refusal_of_a_running_command_is_told_the_same_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(settings: ServeSettings) -> int:
        raise ArgumentError("The profile is absent.")

    module = ModuleType("app.serve")
    module.run = refuse  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "app.serve", module)
    assert main(["serve"]) == 2
    assert capsys.readouterr().err == "mocker: error: The profile is absent.\n"


def test_subcommand_gets_the_remaining_words(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[list[str]] = []
    module = ModuleType("app.replay.cli")

    def run(words: list[str]) -> int:
        received.append(words)
        return 3

    module.__dict__["main"] = run
    monkeypatch.setitem(sys.modules, "app.replay.cli", module)
    assert main(["replay", "trace", "--report", "x"]) == 3
    assert received == [["trace", "--report", "x"]]


def test_interrupt_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(words: list[str]) -> int:
        raise KeyboardInterrupt

    module = ModuleType("app.replay.cli")
    module.main = interrupt  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "app.replay.cli", module)
    assert main(["replay"]) == 130


def test_version_and_help_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"mocker {__version__}\n"
    assert main(["--help"]) == 0
    assert "replay" in capsys.readouterr().out
    assert main(["serve", "--help"]) == 0
    assert "--max-num-seqs" in capsys.readouterr().out


def test_no_command_shows_the_usage_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert capsys.readouterr().out.startswith("usage: mocker COMMAND")


def test_reading_settings_imports_no_web_framework() -> None:
    code = (
        "import sys\nfrom app.settings.load import load_settings\nload_settings(['--port', '1'], {})\n"
        "heavy = {'fastapi', 'pydantic', 'uvicorn', 'yaml', 'numpy', 'asyncio'} & sys.modules.keys()\n"
        "sys.exit(f'imported {sorted(heavy)}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
