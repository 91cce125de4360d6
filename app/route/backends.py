"""The servers behind the router and who of them is next. Knows addresses and counts, not HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from mocker_core.errors import ArgumentError


class RoutePolicy(StrEnum):
    ROUND_ROBIN = "round_robin"
    LEAST_LOADED = "least_loaded"


@dataclass(slots=True)
class Backend:
    """One server: its base URL and how many requests it has, was sent and could not be reached for."""

    url: str
    in_flight: int = 0
    sent: int = 0
    unreachable: int = 0

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Count a request as this server's while the block runs."""
        self.in_flight += 1
        self.sent += 1
        try:
            yield
        finally:
            self.in_flight -= 1


class BackendPool:
    """The servers of one role."""

    def __init__(self, role: str, urls: Sequence[str], policy: RoutePolicy) -> None:
        """Raises ArgumentError for an empty list or an address that is not http(s)://host[:port]."""
        if not urls:
            raise ArgumentError(
                f"--{role} names no server; give at least one URL, such as http://127.0.0.1:8100."
            )
        self.role = role
        self.backends = [Backend(checked_url(url, f"--{role}")) for url in urls]
        self._policy = policy
        self._turn = 0

    def candidates(self) -> list[Backend]:
        """Every server, the one to try first in front; takes a turn."""
        start = self._turn % len(self.backends)
        self._turn += 1
        in_turn = self.backends[start:] + self.backends[:start]
        if self._policy is RoutePolicy.LEAST_LOADED:
            in_turn.sort(key=lambda backend: backend.in_flight)
        return in_turn


def checked_url(url: str, name: str = "The address") -> str:
    """A server's base URL in one form. Raises ArgumentError, beginning with `name`, for anything else."""
    import httpx

    wrong = ArgumentError(f"{name} is {url!r:.200}; it must be a URL such as http://127.0.0.1:8100.")
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        base = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        httpx.URL(base)  # what it refuses here it would refuse in the middle of a request
    except (httpx.InvalidURL, ValueError):
        raise wrong from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise wrong
    return base
