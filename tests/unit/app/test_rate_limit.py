from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import ApiError
from app.rate_limit import RateLimiter, api_key_of, duration_text
from app.state import AppState
from tests.harness.asgi_stream import AsgiClient
from tests.unit.app.serving_fixtures import chat, served

PATH = "/v1/chat/completions"


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_requests_beyond_the_limit_wait_until_enough_has_filled() -> None:
    clock = Clock()
    limiter = RateLimiter(3, None, clock)
    for _ in range(3):
        limiter.admit(b"a", 1)
    with pytest.raises(ApiError) as caught:
        limiter.admit(b"a", 1)
    assert caught.value.status == 429
    assert caught.value.headers["Retry-After"] == "20"
    assert caught.value.headers["Retry-After-Ms"] == "20000"
    assert caught.value.headers["x-ratelimit-remaining-requests"] == "0"
    assert caught.value.headers["x-ratelimit-reset-requests"] == "1m0s"
    limiter.admit(b"b", 1)
    clock.now_s += 19.9
    with pytest.raises(ApiError):
        limiter.admit(b"a", 1)
    clock.now_s += 0.2
    limiter.admit(b"a", 1)


def test_tokens_count_and_a_refused_request_takes_nothing() -> None:
    limiter = RateLimiter(10, 100, Clock())
    headers = dict(limiter.admit(b"", 60))
    assert headers[b"x-ratelimit-limit-tokens"] == b"100"
    assert headers[b"x-ratelimit-remaining-tokens"] == b"40"
    assert headers[b"x-ratelimit-remaining-requests"] == b"9"
    with pytest.raises(ApiError, match="TPM"):
        limiter.admit(b"", 50)
    assert dict(limiter.admit(b"", 40))[b"x-ratelimit-remaining-requests"] == b"8"


def test_a_request_above_the_limit_is_told_that_waiting_does_not_help() -> None:
    with pytest.raises(ApiError, match="too large") as caught:
        RateLimiter(None, 100, Clock()).admit(b"", 101)
    assert caught.value.headers["x-should-retry"] == "false"
    assert "Retry-After" not in caught.value.headers


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(1, 40)), max_size=60))
@settings(max_examples=60)
def test_no_minute_ever_admits_more_than_the_level_and_what_fills(steps: list[tuple[float, int]]) -> None:
    clock, taken = Clock(), 0
    limiter = RateLimiter(None, 100, clock)
    for pause_s, tokens in steps:
        clock.now_s += pause_s
        try:
            limiter.admit(b"", tokens)
            taken += tokens
        except ApiError:
            pass
        assert taken <= 100 + (clock.now_s - 100.0) * 100 / 60 + 1e-6


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0ms"), (0.0115, "12ms"), (1, "1s"), (8.64, "8.64s"), (360, "6m0s")]
)
def test_durations_are_written_as_openai_does(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_answers_carry_the_headers_and_count_exactly_their_usage() -> None:
    async def test(client: AsgiClient, state: AppState) -> None:
        for stream in (False, True):
            key = {"Authorization": f"Bearer {stream}", "Origin": "http://page"}
            got = await client.post(PATH, chat(max_tokens=9, n=2, stream=stream), key)
            assert got.headers["x-ratelimit-remaining-requests"] == "1"
            left = int(got.headers["x-ratelimit-remaining-tokens"])
            if not stream:
                used = got.json()["usage"]["total_tokens"]
                assert left == 1000 - used
            assert left == 1000 - used
            await client.post(PATH, chat(max_tokens=1), key)
            refused = await client.post(PATH, chat(max_tokens=1, stream=stream), key)
            assert refused.status == 429
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.headers["access-control-allow-origin"] == "*"
            assert refused.headers["x-request-id"]
            assert refused.json()["error"]["type"] == "RateLimitError"
        assert (await client.get("/admin/metrics")).json()["rate_limits"]["refused"]["requests"] == 2

    served(test, rate_limit_requests_per_minute=2, rate_limit_tokens_per_minute=1000)


def test_without_limits_no_header_is_sent() -> None:
    async def test(client: AsgiClient, state: AppState) -> dict[str, str]:
        return (await client.post(PATH, chat(max_tokens=1))).headers

    assert not [name for name in served(test) if name.startswith("x-ratelimit")]


def test_long_keys_are_told_apart_but_not_kept() -> None:
    one, other = b"Bearer " + b"a" * 5000, b"Bearer " + b"a" * 4999 + b"b"
    names = {api_key_of({b"authorization": key}) for key in (one, other)}
    assert len(names) == 2
    assert max(map(len, names)) < 300
    assert api_key_of({b"x-api-key": b"short"}) == b"short"
