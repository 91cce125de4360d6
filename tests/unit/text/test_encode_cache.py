from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from app.text.encode_cache import EncodeCache
from app.text.tokenizer import BuiltinTokenizer


class CountingTokenizer(BuiltinTokenizer):
    def __init__(self) -> None:
        super().__init__()
        self.encoded: list[str] = []

    def encode(self, text: str) -> list[int]:
        self.encoded.append(text)
        return super().encode(text)


def make_text(name: str, chars: int = 300) -> str:
    return (name + " ") * (chars // (len(name) + 1))


def test_long_text_is_encoded_once_and_right() -> None:
    tokenizer = CountingTokenizer()
    cache = EncodeCache(tokenizer)
    text = make_text("harbour", 4000)
    assert (
        list(cache.encode(text)) == list(cache.encode("".join(list(text)))) == BuiltinTokenizer().encode(text)
    )
    assert tokenizer.encoded == [text]


def test_short_text_is_not_kept() -> None:
    cache = EncodeCache(BuiltinTokenizer())
    assert cache.encode("short") == BuiltinTokenizer().encode("short")
    assert len(cache) == 0


def test_least_recently_used_text_goes_first() -> None:
    tokenizer = CountingTokenizer()
    cache = EncodeCache(tokenizer, max_chars=950)
    one, two, three, four = (make_text(name) for name in ("one", "two", "red", "sun"))
    for text in (one, two, three, one, four, one, two):
        cache.encode(text)
    assert tokenizer.encoded == [one, two, three, four, two]
    assert len(cache) == 3


def test_text_beyond_the_bound_is_encoded_but_not_kept() -> None:
    cache = EncodeCache(BuiltinTokenizer(), max_chars=250)
    text = make_text("word", 400)
    assert cache.encode(text) == BuiltinTokenizer().encode(text)
    assert len(cache) == 0


class TwoAtOnce(BuiltinTokenizer):
    """Encodes the first text only once two threads ask for it."""

    def __init__(self) -> None:
        super().__init__()
        self.meeting = threading.Barrier(2, timeout=20)

    def encode(self, text: str) -> list[int]:
        if text.startswith("first"):
            self.meeting.wait()
        return super().encode(text)


def test_text_that_two_threads_encode_at_once_counts_once() -> None:
    cache = EncodeCache(TwoAtOnce(), max_chars=2000)
    first = make_text("first", 600)
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(cache.encode, [first, first])
    assert one == other
    for name in ("second", "third"):
        cache.encode(make_text(name, 600))
    assert len(cache) == 3, "there is room for three"
