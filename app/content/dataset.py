"""Dataset mode: answers looked up by prompt, from a JSONL or SQLite file that is read locally."""

from __future__ import annotations

from pathlib import Path


class DatasetError(ValueError):
    """The file cannot be used; one sentence with file and line."""


class Dataset:
    """prompt -> answer. Rows: {"prompt" or "prompt_hash" (sha256 hex of the prompt's UTF-8), "answer"}."""

    @classmethod
    def load(cls, path: Path) -> Dataset:
        """JSONL by default; SQLite if the file is one (table `answers` with the same column names). Raises DatasetError."""
        raise NotImplementedError

    def answer_for(self, prompt: str) -> str | None:
        """The answer to this very prompt (the last user message for chat), or None."""
        raise NotImplementedError
