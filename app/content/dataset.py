"""Dataset mode: answers looked up by prompt, from a local JSONL or SQLite file.

Owns reading the file. Must not know HTTP, tokens or what happens to a prompt without an answer.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

_SQLITE_MAGIC = b"SQLite format 3\x00"
_TABLE = "answers"


class DatasetError(ValueError):
    """The file cannot be used; one sentence with the file, and the line or table."""


class _Answers(Protocol):
    def find(self, prompt: str) -> str | None: ...
    def count(self) -> int: ...
    def close(self) -> None: ...


class Dataset:
    """prompt -> answer. A row has `answer` and either `prompt` or `prompt_hash` (prompt_hash() of it).

    The prompt is the text of /v1/completions, or the last user message of a chat. Of several rows
    for one prompt the last one holds in JSONL, the first one found in SQLite."""

    def __init__(self, path: Path, answers: _Answers) -> None:
        self.path = path
        self._answers = answers

    @classmethod
    def load(cls, path: Path) -> Dataset:
        """A file that begins as SQLite does is opened as such (table `answers`, read only, looked up on
        demand); any other is read as JSONL, whole. Raises DatasetError."""
        try:
            with path.open("rb") as file:
                is_sqlite = file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC
        except OSError as error:
            raise DatasetError(f"The dataset {path} cannot be read: {error.strerror}.") from None
        return cls(path, _SqliteAnswers(path) if is_sqlite else _JsonlAnswers(path))

    def answer_for(self, prompt: str) -> str | None:
        """The answer to this very prompt, or None."""
        return self._answers.find(prompt)

    def __len__(self) -> int:
        return self._answers.count()

    def close(self) -> None:
        self._answers.close()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def prompt_hash(prompt: str) -> str:
    """SHA-256 of the prompt's UTF-8, in lower-case hex."""
    return sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()


class _JsonlAnswers:
    """Everything in memory, by hash."""

    def __init__(self, path: Path) -> None:
        self._by_hash: dict[bytes, str] = {}
        try:
            with path.open(encoding="utf-8") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        key, answer = _read_row(line, f"{path}, line {number}")
                        self._by_hash[key] = answer
        except UnicodeDecodeError as error:
            raise DatasetError(f"{path} is neither SQLite nor UTF-8 text: {error.reason}.") from None

    def find(self, prompt: str) -> str | None:
        return self._by_hash.get(bytes.fromhex(prompt_hash(prompt)))

    def count(self) -> int:
        return len(self._by_hash)

    def close(self) -> None:
        self._by_hash.clear()


def _read_row(line: str, where: str) -> tuple[bytes, str]:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{where}: not valid JSON ({error}).") from None
    if not isinstance(row, dict) or not isinstance(row.get("answer"), str):
        raise DatasetError(f'{where}: each line must be an object with a text "answer".')
    prompt, key = row.get("prompt"), row.get("prompt_hash")
    if isinstance(prompt, str) and key is None:
        key = prompt_hash(prompt)
    elif not isinstance(key, str) or prompt is not None:
        raise DatasetError(f'{where}: give either "prompt" or "prompt_hash", as text.')
    try:
        digest = bytes.fromhex(key)
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise DatasetError(f"{where}: prompt_hash must be 64 hex digits (SHA-256 of the prompt).")
    return digest, row["answer"]


class _SqliteAnswers:
    """Looked up on demand; the file may be larger than memory."""

    def __init__(self, path: Path) -> None:
        # One connection for all threads: it only ever reads, and sqlite3 serialises its use.
        uri = f"{path.resolve().as_uri()}?mode=ro"
        self._connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
        try:
            columns = self._columns(path)
        except BaseException:
            self._connection.close()
            raise
        self._column = "prompt" if "prompt" in columns else "prompt_hash"

    def _columns(self, path: Path) -> set[str]:
        try:
            with closing(self._connection.execute(f"PRAGMA table_info({_TABLE})")) as rows:
                columns = {row[1] for row in rows}
        except sqlite3.Error as error:
            raise DatasetError(f"{path} is not a usable SQLite file: {error}.") from None
        if "answer" not in columns or not columns & {"prompt", "prompt_hash"}:
            raise DatasetError(
                f"{path} must have a table {_TABLE!r} with the columns answer and prompt (or prompt_hash);"
                f" it has {', '.join(sorted(columns)) or 'no such table'}."
            )
        return columns

    def find(self, prompt: str) -> str | None:
        key = prompt if self._column == "prompt" else prompt_hash(prompt)
        query = f"SELECT answer FROM {_TABLE} WHERE {self._column} = ? LIMIT 1"
        try:
            with closing(self._connection.execute(query, (key,))) as rows:
                row = rows.fetchone()
        except UnicodeEncodeError:
            return None  # a lone surrogate: no stored text can have one
        return None if row is None else str(row[0])

    def count(self) -> int:
        with closing(self._connection.execute(f"SELECT COUNT(*) FROM {_TABLE}")) as rows:
            return int(rows.fetchone()[0])

    def close(self) -> None:
        self._connection.close()
