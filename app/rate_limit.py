"""Requests and tokens per minute and API key, as token buckets that fill continuously; OpenAI's headers.

Owns the buckets. A request counts its prompt and the answer that was planned for it, exactly as its usage
will if it ends. Must not know routes.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from app.errors import ApiError
from app.stream_response import Header

if TYPE_CHECKING:
    from app.state import AppState

_RATE_LIMITER = "rate_limiter"
_MOST_KEYS = 10_000
_LONGEST_KEY_BYTES = 256


@dataclass(slots=True)
class _Bucket:
    """`level` is what may be taken now; it fills by `capacity` a minute."""

    capacity: int
    level: float
    filled_s: float

    def fill(self, now_s: float) -> None:
        gained = (now_s - self.filled_s) * self.capacity / 60
        self.level = min(float(self.capacity), self.level + gained)
        self.filled_s = now_s

    def wait_s(self, amount: float) -> float:
        return max(0.0, (amount - self.level) * 60 / self.capacity)


class RateLimiter:
    """Limits of None do not hold. `now_s`: a clock that never goes back."""

    def __init__(
        self,
        requests_per_minute: int | None,
        tokens_per_minute: int | None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        limits = {"requests": requests_per_minute, "tokens": tokens_per_minute}
        self._limits = {name: limit for name, limit in limits.items() if limit is not None}
        self._now_s = now_s
        self._keys: OrderedDict[bytes, dict[str, _Bucket]] = OrderedDict()
        self.refused = {"requests": 0, "tokens": 0}

    def admit(self, key: bytes, tokens: int) -> list[Header]:
        """Take one request with its tokens; the headers of its answer. Raises ApiError 429; then nothing
        was taken."""
        buckets = self._buckets(key)
        wanted = {"requests": 1, "tokens": tokens}
        for name, bucket in buckets.items():
            if bucket.level < wanted[name]:
                self.refused[name] += 1
                raise _refusal(name, bucket, wanted[name], self._headers(buckets))
        for name, bucket in buckets.items():
            bucket.level -= wanted[name]
        return [(name.encode(), value.encode()) for name, value in self._headers(buckets).items()]

    def _buckets(self, key: bytes) -> dict[str, _Bucket]:
        now_s = self._now_s()
        found = self._keys.pop(key, None)
        if found is None:
            found = {name: _Bucket(limit, limit, now_s) for name, limit in self._limits.items()}
        self._keys[key] = found
        if len(self._keys) > _MOST_KEYS:
            self._keys.popitem(last=False)
        for bucket in found.values():
            bucket.fill(now_s)
        return found

    def _headers(self, buckets: Mapping[str, _Bucket]) -> dict[str, str]:
        headers: dict[str, str] = {}
        for name, bucket in buckets.items():
            headers[f"x-ratelimit-limit-{name}"] = str(bucket.capacity)
            headers[f"x-ratelimit-remaining-{name}"] = str(int(bucket.level))
            headers[f"x-ratelimit-reset-{name}"] = duration_text(bucket.wait_s(bucket.capacity))
        return headers


def install_rate_limits(state: AppState) -> None:
    """As the settings say; without limits there is no limiter."""
    from app.ops.metrics_json import add_section

    settings = state.settings
    requests, tokens = settings.rate_limit_requests_per_minute, settings.rate_limit_tokens_per_minute
    if requests is not None or tokens is not None:
        limiter = state.extras[_RATE_LIMITER] = RateLimiter(requests, tokens)
        add_section(state, "rate_limits", lambda _: {"refused": dict(limiter.refused)})


def rate_limiter_of(state: AppState) -> RateLimiter | None:
    limiter: RateLimiter | None = state.extras.get(_RATE_LIMITER)
    return limiter


def api_key_of(headers: Mapping[bytes, bytes]) -> bytes:
    """What tells callers apart: the key as it was sent (of a long one a digest), b"" without one."""
    key = headers.get(b"authorization") or headers.get(b"x-api-key") or b""
    return key if len(key) <= _LONGEST_KEY_BYTES else blake2b(key, digest_size=32).digest()


def duration_text(seconds: float) -> str:
    """As OpenAI writes it: 12ms, 8.64s, 6m0s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(seconds, 60)
    if minutes:
        return f"{int(minutes)}m{int(rest)}s"
    return f"{rest:.3f}".rstrip("0").rstrip(".") + "s"


def _refusal(name: str, bucket: _Bucket, wanted: int, headers: dict[str, str]) -> ApiError:
    unit = {"requests": "requests per min (RPM)", "tokens": "tokens per min (TPM)"}[name]
    if wanted > bucket.capacity:
        message = (
            f"Request too large on {unit}: Limit {bucket.capacity}, Requested {wanted}. "
            "The prompt or the answer must be shorter."
        )
        headers |= {"x-should-retry": "false"}
    else:
        wait_s = bucket.wait_s(wanted)
        used = bucket.capacity - int(bucket.level)
        message = (
            f"Rate limit reached on {unit}: Limit {bucket.capacity}, Used {used}, Requested {wanted}. "
            f"Please try again in {duration_text(wait_s)}."
        )
        headers |= {"Retry-After": str(math.ceil(wait_s)), "Retry-After-Ms": str(math.ceil(wait_s * 1000))}
    return ApiError(429, message, code="rate_limit_exceeded", err_type=name, headers=headers)
