"""Recorded answers of a real server: one JSON line each, with bytes and timing; found again by request.

Owns the file's form and the key of a request. Never holds a request's headers, so no key of an API.
Must not know HTTP servers or clients.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

FILE_NAME = "recordings.jsonl"
_VERSION = 1


class RecordingError(ValueError):
    """The file cannot be used; one sentence with the file and the line."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One answer. `chunks`: (ms after the request was sent, the bytes that came)."""

    key: str
    path: str
    request: Any
    status: int
    headers: tuple[tuple[str, str], ...]
    chunks: tuple[tuple[float, bytes], ...]
    recorded_at_s: float = 0.0

    def to_line(self) -> str:
        fields = {
            "version": _VERSION,
            "key": self.key,
            "path": self.path,
            "recorded_at": self.recorded_at_s,
            "request": self.request,
            "status": self.status,
            "headers": dict(self.headers),
            "chunks": [[round(at_ms, 3), *_written(body)] for at_ms, body in self.chunks],
        }
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"


def request_key(path: str, body: bytes) -> str:
    """The same for bodies that say the same, whatever their spaces and the order of their fields."""
    try:
        said = json.dumps(json.loads(body), sort_keys=True, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        said = body
    return sha256(path.encode() + b"\n" + said).hexdigest()


def request_shown(body: bytes) -> Any:
    """A request's body as the file shows it."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode("utf-8", "replace")


def recording_file(path: Path) -> Path:
    """Where recordings for --content-path go: the file itself, or one in the directory."""
    return path / FILE_NAME if path.is_dir() else path


class Recordings:
    """All recordings of a file, or of a directory's .jsonl files in order of their names."""

    def __init__(self, found: Iterable[Recording]) -> None:
        self._by_key: dict[str, list[Recording]] = {}
        self._used: dict[str, int] = {}
        for recording in found:
            self._by_key.setdefault(recording.key, []).append(recording)

    @classmethod
    def load(cls, path: Path) -> Recordings:
        """Raises RecordingError."""
        files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        return cls(recording for file in files for recording in _read(file))

    def __len__(self) -> int:
        return sum(len(found) for found in self._by_key.values())

    def next_for(self, key: str) -> Recording | None:
        """The recordings of one request in turn; the last one repeats."""
        found = self._by_key.get(key)
        if found is None:
            return None
        used = self._used.get(key, 0)
        self._used[key] = used + 1
        return found[min(used, len(found) - 1)]


@dataclass(slots=True)
class ChunkClock:
    """Collects the chunks of one answer while it comes in."""

    started_s: float
    chunks: list[tuple[float, bytes]] = field(default_factory=list)

    def add(self, now_s: float, body: bytes) -> None:
        self.chunks.append(((now_s - self.started_s) * 1000, body))


def _written(body: bytes) -> tuple[str, ...]:
    """Text as it is; what is not UTF-8 as base64, with a third field that says so."""
    try:
        return (body.decode("utf-8"),)
    except UnicodeDecodeError:
        return (base64.b64encode(body).decode(), "base64")


def _read(path: Path) -> list[Recording]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise RecordingError(f"The recordings {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise RecordingError(f"The recordings {path} are not UTF-8 text.") from None
    return [_parse(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]


def _parse(line: str, where: str) -> Recording:
    try:
        fields = json.loads(line)
        if not isinstance(fields, Mapping) or fields.get("version") != _VERSION:
            raise RecordingError(f"{where}: not a recording of version {_VERSION}.")
        return Recording(
            key=str(fields["key"]),
            path=str(fields["path"]),
            request=fields.get("request"),
            status=int(fields["status"]),
            headers=tuple((str(name), str(value)) for name, value in fields["headers"].items()),
            chunks=tuple(_chunk(chunk) for chunk in fields["chunks"]),
            recorded_at_s=float(fields.get("recorded_at", 0.0)),
        )
    except RecordingError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise RecordingError(f"{where}: not a recording ({type(error).__name__}: {error}).") from None


def _chunk(chunk: Any) -> tuple[float, bytes]:
    body = base64.b64decode(chunk[1]) if len(chunk) > 2 else chunk[1].encode("utf-8")
    return float(chunk[0]), body
