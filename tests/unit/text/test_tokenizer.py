from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.tokenizer import BuiltinTokenizer
from app.text.vocabulary import BYTE_BASE, MARKERS, PIECE_BASE


@cache
def tokenizer() -> BuiltinTokenizer:
    return BuiltinTokenizer()


@given(st.text(max_size=400))
def test_any_text_encoded_decodes_to_itself(text: str) -> None:
    assert tokenizer().decode(tokenizer().encode(text)) == text


@given(st.text(alphabet=" \n\t\r\v\fab'1.,\"{}é\u3042\U0001f600", max_size=200))
def test_blanks_and_marks_in_any_order_decode_to_themselves(text: str) -> None:
    ids = tokenizer().encode(text)
    assert tokenizer().decode(ids) == text
    assert all(0 <= token_id < tokenizer().vocab_size for token_id in ids)


@given(st.text(max_size=200))
def test_any_text_gives_no_token_longer_than_promised(text: str) -> None:
    ids = tokenizer().encode(text)
    assert len(ids) >= len(text) / tokenizer().max_token_chars


def test_long_runs_decode_to_themselves() -> None:
    for run in (
        "a" * 1000,
        " " * 777,
        "\n" * 99,
        "=" * 300,
        "7" * 50,
        "\t" * 40,
        " \n" * 30,
        "\U0001f600" * 20,
    ):
        assert tokenizer().decode(tokenizer().encode(run)) == run


def test_english_text_takes_about_four_characters_a_token() -> None:
    text = (
        "My neighbour asked whether I could help her carry the old piano down the stairs on Saturday. "
        "I said yes, although I knew that it would probably take the whole afternoon, and that we should "
        "need at least two more people. In the end there were five of us, and it took twenty minutes."
    )
    assert 3.7 < len(text) / len(tokenizer().encode(text)) < 5.5


def test_common_words_with_a_blank_before_them_are_one_token_each() -> None:
    ids = tokenizer().encode("The children walked to the river.")
    assert [tokenizer().token_text(token_id) for token_id in ids][-3:] == [" the", " river", "."]


def test_marker_names_in_text_never_become_markers() -> None:
    for name in MARKERS:
        ids = tokenizer().encode(f"a {name} b")
        assert not set(ids) & set(tokenizer().marker(name))
        assert tokenizer().decode(ids) == f"a {name} b"


def test_unknown_marker_is_refused() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        tokenizer().marker("<|nonsense|>")


@given(st.integers(0, 2**32 - 1))
def test_any_uint32_id_has_printable_text(token_id: int) -> None:
    assert tokenizer().token_text(token_id)
    assert tokenizer().decode([token_id]) == tokenizer().token_text(token_id)


def test_id_outside_the_vocabulary_has_a_stand_in() -> None:
    assert tokenizer().token_text(4_000_000_000) == "⟨4000000000⟩"
    assert tokenizer().decode([4_000_000_000, *tokenizer().encode(" x")]) == "⟨4000000000⟩ x"


def test_lone_surrogate_counts_as_replacement_character() -> None:
    assert tokenizer().decode(tokenizer().encode("a\ud800b")) == "a\ufffdb"


def test_astral_character_is_split_into_bytes_that_are_no_text_alone() -> None:
    ids = tokenizer().encode("\U0001f600")
    assert ids == [BYTE_BASE + byte for byte in "\U0001f600".encode()]
    assert tokenizer().decode(ids[:2]) == "\ufffd"


def test_other_scripts_take_one_token_a_character() -> None:
    assert len(tokenizer().encode("日本語のテキスト")) == 8


def test_every_piece_of_the_vocabulary_encodes_alone_to_text_that_decodes_to_it() -> None:
    for token_id in range(PIECE_BASE, PIECE_BASE + 20_000, 7):
        text = tokenizer().token_text(token_id)
        assert tokenizer().decode(tokenizer().encode(text)) == text
