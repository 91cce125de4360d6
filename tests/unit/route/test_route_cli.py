from __future__ import annotations

import pytest

from app.cli import main


def test_wrong_address_is_one_sentence_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["route", "--prefill", "ftp://x", "--decode", "http://d"]) == 2
    assert "--prefill is 'ftp://x'; it must be a URL" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["route"], ["route", "--prefill", "http://p"], ["demo"], ["demo", "other"]]
)
def test_missing_words_are_named_and_end_with_status_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: mocker" in capsys.readouterr().err


def test_demo_without_a_server_of_a_role_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "disagg", "--decode", "0"]) == 2
    assert "--decode is 0" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["route", "demo"])
def test_help_explains_the_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert "prefill" in capsys.readouterr().out
