"""Faults that a request suffers: asked for by its headers, or drawn at the server's rates.

    X-Mocker-Error: 503          that status at once          X-Mocker-TTFT-Ms / -ITL-Ms: 200   later tokens
    X-Mocker-Stall-After: 5      silence after 5 tokens, for X-Mocker-Stall-Ms or for ever
    X-Mocker-Disconnect-After: 5 the connection is cut after 5 tokens

Owns their meaning and the draw. Must not know how they are carried out (`app.openai.paced`).
"""

from __future__ import annotations

import dataclasses
import http
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from app.errors import ApiError, bad_request
from mocker_core.errors import ArgumentError

if TYPE_CHECKING:
    from app.state import AppState

_PACE_HEADERS = tuple(
    (shown.lower().encode(), name, shown)
    for name, shown in (
        ("ttft_ms", "X-Mocker-TTFT-Ms"),
        ("itl_ms", "X-Mocker-ITL-Ms"),
        ("stall_after", "X-Mocker-Stall-After"),
        ("stall_ms", "X-Mocker-Stall-Ms"),
        ("disconnect_after", "X-Mocker-Disconnect-After"),
    )
)
_LONGEST_MS = 86_400_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What is done to one request's tokens after the engine made them; times in ms, added to the engine's."""

    ttft_ms: float = 0.0
    itl_ms: float = 0.0
    stall_after: int | None = None
    stall_ms: float | None = None
    disconnect_after: int | None = None


NO_CHANGE = Pace()


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRates:
    """Shares of all requests in [0, 1]; the first that comes up holds. `error_status`: 400 to 599."""

    error: float = 0.0
    disconnect: float = 0.0
    stall: float = 0.0
    error_status: int = 500

    def __post_init__(self) -> None:
        for name in ("error", "disconnect", "stall"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
                raise bad_request(f"faults.{name} is {value!r:.60}; it must be a rate from 0 to 1.", "faults")
        total = self.error + self.disconnect + self.stall
        if total > 1:
            raise bad_request(f"The rates in faults add up to {total:g}; lower them to at most 1.", "faults")
        status = self.error_status
        if isinstance(status, bool) or not isinstance(status, int) or not 400 <= status <= 599:
            raise bad_request(
                f"faults.error_status is {status!r:.60}; it must be a status from 400 to 599.", "faults"
            )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], old: FaultRates | None = None) -> FaultRates:
        """`old` with the given names changed. Raises ApiError 400."""
        known = [item.name for item in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise bad_request(f"faults.{name} is unknown; known are {', '.join(known)}.", "faults")
        return dataclasses.replace(old or cls(), **values)


@dataclass(slots=True)
class Faults:
    """The faults of one server. `rates` may be replaced at any time; draws follow from `seed`."""

    rates: FaultRates
    seed: int = 0
    headers_allowed: bool = True
    _random: Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = Random(f"faults/{self.seed}")

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Before a request is looked at. Raises ApiError with the status that a header or the draw wants."""
        text = headers.get(b"x-mocker-error") if self.headers_allowed else None
        if text is not None:
            raise _fault_error(_whole_number("X-Mocker-Error", text, 400, 599))
        if self.rates.error and self._random.random() < self.rates.error:
            raise _fault_error(self.rates.error_status)

    def pace(self, headers: Mapping[bytes, bytes], planned_tokens: int) -> Pace:
        """How one choice's tokens go out. Raises ApiError 400 for a header that is no number."""
        asked = self._asked(headers) if self.headers_allowed else NO_CHANGE
        rates = self.rates
        if not (rates.disconnect or rates.stall):
            return asked
        draw = self._random.random() * (1 - rates.error or 1)
        place = self._random.randrange(max(1, planned_tokens))
        if draw < rates.disconnect:
            return dataclasses.replace(asked, disconnect_after=place)
        if draw < rates.disconnect + rates.stall:
            return dataclasses.replace(asked, stall_after=place)
        return asked

    def _asked(self, headers: Mapping[bytes, bytes]) -> Pace:
        given: dict[str, Any] = {}
        for header, name, shown in _PACE_HEADERS:
            if (text := headers.get(header)) is None:
                continue
            is_time = name.endswith("_ms")
            given[name] = _milliseconds(shown, text) if is_time else _whole_number(shown, text, 0, 10**9)
        return Pace(**given) if given else NO_CHANGE


def faults_of(state: AppState) -> Faults:
    """The faults of this server."""
    found: Faults = state.extras["faults"]
    return found


def install_faults(state: AppState) -> None:
    """As the settings say. Raises ArgumentError for wrong rates."""
    settings = state.settings
    try:
        rates = FaultRates.from_mapping(settings.faults or {})
    except ApiError as error:
        raise ArgumentError(f"--faults: {error.message}") from None
    state.extras["faults"] = Faults(rates, settings.seed, settings.fault_headers)


def _fault_error(status: int) -> ApiError:
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = "Fault"
    headers = {"Retry-After": "1"} if status in (429, 503) else {}
    kind = "server_error" if status >= 500 else None
    return ApiError(
        status, f"{phrase} (a fault that was asked for).", code="mocker_fault", err_type=kind, headers=headers
    )


def _whole_number(name: str, text: bytes, low: int, high: int) -> int:
    if not text.isdigit() or len(text) > 12 or not low <= int(text) <= high:
        shown = text.decode("latin-1")
        raise bad_request(f"{name} is {shown!r:.60}; it must be a whole number from {low} to {high}.", name)
    return int(text)


def _milliseconds(name: str, text: bytes) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= _LONGEST_MS:
        shown = text.decode("latin-1")
        raise bad_request(
            f"{name} is {shown!r:.60}; it must be milliseconds from 0 to a day (86400000).", name
        )
    return value
