from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from app.text.detokenizer import Detokenizer
from app.text.tokenizer import BuiltinTokenizer

ALPHABET = "ab .é\U0001f600"


@cache
def tokenizer() -> BuiltinTokenizer:
    return BuiltinTokenizer()


def read(ids: list[int], **options: object) -> tuple[list[str], Detokenizer]:
    detokenizer = Detokenizer(tokenizer(), **options)  # type: ignore[arg-type]
    return [*(detokenizer.push(token_id) for token_id in ids), detokenizer.finish()], detokenizer


def cut_by_hand(text: str, stops: list[str], *, include: bool) -> tuple[str, str | None]:
    """Character by character: the stop that is complete first, the longest of those that end together."""
    for end in range(1, len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            stop = max(ended, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


@given(st.lists(st.integers(0, 131_071) | st.integers(32, 290), max_size=60))
def test_pieces_of_any_ids_join_to_the_decoded_whole(ids: list[int]) -> None:
    pieces, _ = read(ids)
    assert "".join(pieces) == tokenizer().decode(ids)


@given(st.text(alphabet=ALPHABET, max_size=60))
def test_no_piece_holds_a_part_of_a_character(text: str) -> None:
    pieces, _ = read(tokenizer().encode(text))
    assert "\ufffd" not in "".join(pieces)
    assert "".join(pieces) == text


@given(
    st.text(alphabet="ab.", max_size=30),
    st.lists(st.text(alphabet="ab.", min_size=1, max_size=4), min_size=1, max_size=4, unique=True),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_stops_cut_the_same_place_however_the_text_is_split(
    text: str, stops: list[str], include: bool, random: object
) -> None:
    ids = [32 + byte for byte in text.encode()] if random.random() < 0.5 else tokenizer().encode(text)  # type: ignore[attr-defined]
    pieces, detokenizer = read(ids, stop=stops, include_stop_str_in_output=include)
    expected, stop = cut_by_hand(text, stops, include=include)
    assert ("".join(pieces), detokenizer.stop_reason) == (expected, stop)
    assert detokenizer.stopped == (stop is not None)


@given(st.text(alphabet="ab.", max_size=30), st.text(alphabet="ab.", min_size=1, max_size=4))
def test_what_was_sent_never_holds_the_stop_nor_its_begin(text: str, stop: str) -> None:
    detokenizer = Detokenizer(tokenizer(), stop=[stop])
    sent = ""
    for byte in text.encode():
        sent += detokenizer.push(32 + byte)
        assert stop not in sent
        if detokenizer.stopped:
            break
    if detokenizer.stopped:
        assert text.startswith(sent + stop)


def test_stop_over_several_tokens_is_held_back_and_not_leaked() -> None:
    ids = tokenizer().encode("one two three four")
    pieces, detokenizer = read(ids, stop=["two three"])
    assert "".join(pieces) == "one "
    assert detokenizer.stop_reason == "two three"


def test_beginning_of_a_stop_that_does_not_go_on_is_sent_at_last() -> None:
    pieces, detokenizer = read(tokenizer().encode("one two"), stop=["two three"])
    assert "".join(pieces) == "one two"
    assert not detokenizer.stopped


def test_longest_stop_decides_how_much_is_held_back() -> None:
    detokenizer = Detokenizer(tokenizer(), stop=["xy", "wxyz"])
    assert [detokenizer.push(32 + byte) for byte in b"abcdef"] == ["", "", "", "a", "b", "c"]


def test_stop_included_if_asked_for() -> None:
    pieces, _ = read(tokenizer().encode("one two three"), stop=["two"], include_stop_str_in_output=True)
    assert "".join(pieces) == "one two"


def test_stop_within_min_tokens_is_passed_over() -> None:
    ids = tokenizer().encode("a b a b a b")
    pieces, detokenizer = read(ids, stop=["b"], min_tokens=3)
    assert "".join(pieces) == "a b a "
    assert detokenizer.num_tokens == 4


def test_stop_that_ends_just_after_min_tokens_counts() -> None:
    ids = [32 + byte for byte in b"xxabxx"]
    pieces, _ = read(ids, stop=["ab"], min_tokens=3)
    assert "".join(pieces) == "xx"
    pieces, _ = read(ids, stop=["ab"], min_tokens=4)
    assert "".join(pieces) == "xxabxx"


def test_stop_token_id_ends_the_text_without_its_own() -> None:
    ids = tokenizer().encode("one two three")
    pieces, detokenizer = read(ids, stop_token_ids=[ids[1]])
    assert ("".join(pieces), detokenizer.stop_reason) == ("one", ids[1])
    pieces, _ = read(ids, stop_token_ids=[ids[1]], include_stop_str_in_output=True)
    assert "".join(pieces) == "one two"


def test_stop_token_id_within_min_tokens_is_ordinary_text() -> None:
    ids = tokenizer().encode("one two two")
    pieces, detokenizer = read(ids, stop_token_ids=[ids[1]], min_tokens=2)
    assert "".join(pieces) == "one two"
    assert detokenizer.num_tokens == 3


def test_unfinished_character_at_the_end_becomes_a_replacement() -> None:
    pieces, _ = read([*tokenizer().encode("ok"), 32 + 0xF0, 32 + 0x9F])
    assert pieces == ["ok", "", "", "\ufffd"]


def test_tokens_after_a_stop_give_nothing() -> None:
    detokenizer = Detokenizer(tokenizer(), stop=["b"])
    assert detokenizer.push_many(tokenizer().encode("a b c d")) == "a "
    assert detokenizer.push_many(tokenizer().encode(" more")) + detokenizer.finish() == ""
