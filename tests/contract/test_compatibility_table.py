"""docs/compatibility.md: each row has a test that exists, or says why the item does not apply."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.contract.named_tests import ROOT, is_a_test

DOCUMENT = ROOT / "docs" / "compatibility.md"
ROW = re.compile(r"^\| ([CW])(\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)
REFERENCE = re.compile(r"`(tests/[\w/]+\.py::\w+)`")
NOT_HERE = "does not apply: "


def rows() -> list[tuple[str, int, str]]:
    """(letter, number, proof) of every row."""
    return [
        (letter, int(number), proof) for letter, number, _, proof in ROW.findall(DOCUMENT.read_text("utf-8"))
    ]


@pytest.mark.parametrize(("letter", "count"), [("W", 25), ("C", 83)])
def test_no_item_is_missing(letter: str, count: int) -> None:
    assert [number for found, number, _ in rows() if found == letter] == list(range(1, count + 1))


def test_every_row_has_a_test_or_a_reason() -> None:
    for letter, number, proof in rows():
        references = REFERENCE.findall(proof)
        assert bool(references) != proof.startswith(NOT_HERE), f"{letter}{number}"
        # Whatever looks like a test is read as one.
        assert proof.count("::") == len(references), f"{letter}{number}"


def test_named_tests_and_files_exist() -> None:
    text = DOCUMENT.read_text("utf-8")
    missing = [reference for reference in REFERENCE.findall(text) if not is_a_test(reference)]
    assert missing == []
    files = re.findall(r"`(tests/[\w/]+\.py)`", text)
    assert files
    assert [name for name in files if not Path(ROOT / name).is_file()] == []


def test_a_test_that_does_not_exist_is_noticed() -> None:
    assert is_a_test("tests/contract/test_compatibility_table.py::test_no_item_is_missing")
    assert not is_a_test("tests/contract/test_compatibility_table.py::test_nothing")
    assert not is_a_test("tests/contract/test_compatibility_table.py::rows")
    assert not is_a_test("tests/contract/test_no_such_file.py::test_no_item_is_missing")
