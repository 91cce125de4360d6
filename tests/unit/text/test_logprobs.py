from __future__ import annotations

import math
from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from app.text.logprobs import LogprobModel
from app.text.tokenizer import BuiltinTokenizer


@cache
def model() -> LogprobModel:
    return LogprobModel(BuiltinTokenizer())


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 5000),
    st.integers(0, 131_071),
    st.integers(0, 20),
    st.booleans(),
)
def test_every_entry_keeps_the_laws(
    seed: int, position: int, token_id: int, top_k: int, greedy: bool
) -> None:
    found = model().at(seed, position, token_id, top_k, greedy=greedy)
    assert found == model().at(seed, position, token_id, top_k, greedy=greedy)
    values = [entry.logprob for entry in found.top]
    assert len(values) == top_k and values == sorted(values, reverse=True)
    assert len({entry.token_id for entry in found.top}) == top_k
    assert found.sampled.logprob <= 0 and all(value <= 0 for value in values)
    assert sum(map(math.exp, values)) <= 1 + 1e-9
    assert [entry.rank for entry in found.top] == list(range(1, top_k + 1))
    assert (found.sampled in found.top) == (found.sampled.rank <= top_k)
    assert not greedy or found.sampled.rank == 1


def test_more_alternatives_do_not_change_the_first_ones() -> None:
    few, many = (model().at(1, 2, 3, k) for k in (3, 12))
    assert many.top[:3] == few.top and many.sampled == few.sampled


def test_sampled_token_is_mostly_but_not_always_the_likeliest() -> None:
    ranks = [model().at(9, place, 400).sampled.rank for place in range(2000)]
    assert 0.8 < ranks.count(1) / len(ranks) < 0.9
    assert set(ranks) == {1, 2, 3}


def test_entry_carries_the_token_as_text_and_bytes() -> None:
    tokenizer = BuiltinTokenizer()
    token_id = tokenizer.encode(" river")[0]
    entry = model().at(1, 0, token_id).sampled
    assert (entry.token_id, entry.token, entry.token_bytes) == (token_id, " river", b" river")


def test_prompt_has_an_entry_for_all_tokens_but_the_first() -> None:
    entries = model().of_prompt(5, [300, 301, 302], 2)
    assert [entry.sampled.token_id for entry in entries] == [301, 302]
