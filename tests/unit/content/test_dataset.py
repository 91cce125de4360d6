from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.content.dataset import Dataset, DatasetError, prompt_hash

ROWS = [("What is 2+2?", "Four."), ("Grüße\n\U0001f600", "Hallo ✓"), ("", "Silence.")]


def write_jsonl(path: Path, rows: list[Any]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n", encoding="utf-8")
    return path


def write_sqlite(path: Path, column: str, rows: list[tuple[str, str]]) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE answers ({column} TEXT PRIMARY KEY, answer TEXT)")
        connection.executemany("INSERT INTO answers VALUES (?, ?)", rows)
        connection.commit()
    return path


@pytest.fixture(params=["jsonl", "jsonl_hash", "sqlite", "sqlite_hash"])
def dataset_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    hashed = [(prompt_hash(prompt), answer) for prompt, answer in ROWS]
    if request.param == "jsonl":
        return write_jsonl(tmp_path / "d", [{"prompt": p, "answer": a, "more": 1} for p, a in ROWS])
    if request.param == "jsonl_hash":
        return write_jsonl(tmp_path / "d", [{"prompt_hash": p.upper(), "answer": a} for p, a in hashed])
    if request.param == "sqlite":
        return write_sqlite(tmp_path / "d", "prompt", ROWS)
    return write_sqlite(tmp_path / "d", "prompt_hash", hashed)


def test_each_kind_of_file_answers_its_prompts_and_no_other(dataset_path: Path) -> None:
    with Dataset.load(dataset_path) as dataset:
        assert len(dataset) == len(ROWS)
        assert [dataset.answer_for(prompt) for prompt, _ in ROWS] == [answer for _, answer in ROWS]
        assert dataset.answer_for("what is 2+2?") is None
        assert dataset.answer_for("\ud800") is None


def test_last_row_for_a_prompt_holds(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "d", [{"prompt": "a", "answer": "1"}, {"prompt": "a", "answer": "2"}])
    assert Dataset.load(path).answer_for("a") == "2"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "not valid JSON"),
        ("[]", 'text "answer"'),
        ('{"prompt": "x"}', 'text "answer"'),
        ('{"prompt": "x", "answer": 5}', 'text "answer"'),
        ('{"answer": "x"}', 'either "prompt" or "prompt_hash"'),
        ('{"prompt": "x", "prompt_hash": "y", "answer": "x"}', "either"),
        ('{"prompt": 5, "answer": "x"}', "either"),
        ('{"prompt_hash": "abc", "answer": "x"}', "64 hex digits"),
        ('{"prompt_hash": "zz", "answer": "x"}', "64 hex digits"),
    ],
)
def test_wrong_line_is_named(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"prompt": "ok", "answer": "ok"}\n\n' + line + "\n")
    with pytest.raises(DatasetError, match=says) as caught:
        Dataset.load(path)
    assert f"{path}, line 3" in str(caught.value)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="No such file"):
        Dataset.load(tmp_path / "none")


def test_binary_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DatasetError, match="neither SQLite nor UTF-8"):
        Dataset.load(tmp_path / "d")


def test_sqlite_without_the_table_or_column_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "d")) as connection:
        connection.execute("CREATE TABLE other (x)")
        connection.commit()
    with pytest.raises(DatasetError, match="no such table"):
        Dataset.load(tmp_path / "d")
    with closing(sqlite3.connect(tmp_path / "d")) as connection:
        connection.execute("CREATE TABLE answers (answer TEXT, x)")
        connection.commit()
    with pytest.raises(DatasetError, match="answer, x"):
        Dataset.load(tmp_path / "d")


def test_broken_sqlite_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d").write_bytes(b"SQLite format 3\x00" + b"x" * 200)
    with pytest.raises(DatasetError, match="not a usable SQLite file"):
        Dataset.load(tmp_path / "d")
