from __future__ import annotations

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
