from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.generator import (
    ContentMode,
    OutputPlanner,
    PlanRequest,
    ReasoningOptions,
    ToolCallText,
)
from app.text.lengths import LengthModel
from app.text.plan_reader import PlanReader, read_plan
from app.text.token_json import TokenJson
from app.text.tokenizer import BuiltinTokenizer

PROMPT = list(range(300, 340))


@cache
def tokenizer() -> BuiltinTokenizer:
    return BuiltinTokenizer()


@cache
def make_planner(
    mode: ContentMode = "lorem", mean: float = 128, sd: float = 64, seed: int = 0
) -> OutputPlanner:
    return OutputPlanner(tokenizer(), mode=mode, server_seed=seed, lengths=LengthModel(mean, sd))


def make_request(request_id: str = "r", max_tokens: int = 4000, **fields: object) -> PlanRequest:
    return replace(PlanRequest(request_id, PROMPT, max_tokens), **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["lorem", "random"])
@given(seed=st.integers(-(2**70), 2**70), length=st.integers(1, 300))
def test_text_of_generated_tokens_encodes_to_the_same_tokens(
    mode: ContentMode, seed: int, length: int
) -> None:
    for request in (
        make_request(seed=seed, max_tokens=length, ignore_eos=True),
        make_request(seed=seed, max_tokens=length),
    ):
        ids = make_planner(mode).plan(request).to_list()
        assert tokenizer().encode(tokenizer().decode(ids)) == ids


@given(st.integers(0, 2**64), st.integers(1, 200))
def test_every_token_of_default_content_stands_alone(seed: int, length: int) -> None:
    plan = make_planner().plan(make_request(seed=seed, max_tokens=length, ignore_eos=True))
    texts = [tokenizer().token_bytes(token_id).decode() for token_id in plan]
    assert plan.plain and all(texts)
    fragments = TokenJson(tokenizer())
    spliced = b"".join(fragments[token_id] for token_id in plan)
    assert spliced.replace(b"\\n", b"\n").decode() == tokenizer().decode(plan) == "".join(texts)


@given(st.integers(1, 90), st.integers(0, 2**32))
def test_natural_answer_has_the_drawn_length_and_ends_a_sentence(length: int, seed: int) -> None:
    plan = make_planner(mean=length, sd=0).plan(make_request(seed=seed))
    text = tokenizer().decode(plan)
    assert (len(plan), len(plan.to_list()), plan.finish_reason) == (length, length, "stop")
    assert text.endswith(".") or length == 1
    assert text == text.strip() and text[0].isupper()


@given(st.integers(0, 2**32), st.integers(1, 150), st.integers(1, 150))
def test_shorter_limit_gives_a_prefix_of_the_same_answer(seed: int, short: int, long: int) -> None:
    plans = [
        make_planner().plan(make_request(seed=seed, max_tokens=n)).to_list() for n in sorted((short, long))
    ]
    assert plans[1][: len(plans[0])] == plans[0]


@given(st.integers(0, 2**32), st.data())
def test_reading_order_does_not_change_a_plan(seed: int, data: st.DataObject) -> None:
    request = make_request(seed=seed, max_tokens=200, ignore_eos=True)
    whole = make_planner().plan(request).to_list()
    plan = make_planner().plan(request)
    for _ in range(5):
        at = data.draw(st.integers(-200, 199))
        assert plan[at] == whole[at]
    low, high = sorted((data.draw(st.integers(-210, 210)), data.draw(st.integers(-210, 210))))
    assert plan[low:high] == whole[low:high]
    assert plan[::-3] == whole[::-3]


def test_plan_indexed_outside_its_length_raises() -> None:
    plan = make_planner().plan(make_request(max_tokens=5, ignore_eos=True))
    for index in (5, -6):
        with pytest.raises(IndexError):
            plan[index]


def test_same_seed_and_prompt_give_the_same_text_whatever_the_request_id() -> None:
    planner = make_planner()
    first, second = (planner.plan(make_request(name, seed=7)).to_list() for name in ("a", "b"))
    assert first == second


@pytest.mark.parametrize(
    "other",
    [
        make_request("other"),
        make_request(seed=1),
        make_request(choice_index=1),
        make_request(prompt_token_ids=[*PROMPT, 1]),
    ],
    ids=["request_id", "seed", "choice", "prompt"],
)
def test_each_input_of_the_seed_changes_the_answer(other: PlanRequest) -> None:
    planner = make_planner()
    assert planner.plan(make_request()).to_list()[:50] != planner.plan(other).to_list()[:50]


def test_server_seed_changes_answers_without_a_request_seed_only() -> None:
    one, two = make_planner(seed=1), make_planner(seed=2)
    assert one.plan(make_request()).to_list() != two.plan(make_request()).to_list()
    assert one.plan(make_request(seed=5)).to_list() == two.plan(make_request(seed=5)).to_list()


def test_ignore_eos_gives_exactly_max_tokens_and_length() -> None:
    plan = make_planner().plan(make_request(max_tokens=777, ignore_eos=True))
    assert (len(plan), len(plan.to_list()), plan.finish_reason) == (777, 777, "length")


def test_answer_cut_at_max_tokens_ends_with_length() -> None:
    plan = make_planner(mean=50, sd=0).plan(make_request(max_tokens=50))
    assert (len(plan), plan.finish_reason) == (50, "length")


def test_min_tokens_are_reached_before_the_natural_end() -> None:
    plan = make_planner(mean=5, sd=0).plan(make_request(min_tokens=64))
    assert (len(plan), plan.finish_reason) == (64, "stop")


def test_drawn_lengths_have_the_asked_mean_and_deviation() -> None:
    lengths = [len(make_planner().plan(make_request(str(n), max_tokens=10**6))) for n in range(2000)]
    mean = sum(lengths) / len(lengths)
    deviation = (sum((length - mean) ** 2 for length in lengths) / len(lengths)) ** 0.5
    assert abs(mean - 128) < 8 and abs(deviation - 64) < 12


@pytest.mark.parametrize(
    "fields",
    [
        {"mean_tokens": 0},
        {"sd_tokens": -1},
        {"mean_tokens": float("nan")},
        {"min_tokens": 9, "max_tokens": 8},
    ],
)
def test_length_model_out_of_range_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        LengthModel(**fields)  # type: ignore[arg-type]


def test_lorem_text_varies_and_has_paragraphs() -> None:
    text = tokenizer().decode(make_planner().plan(make_request(max_tokens=2000, ignore_eos=True)))
    sentences = text.replace("\n\n", " ").split(". ")
    assert len(set(sentences)) > 0.9 * len(sentences)
    assert 10 < text.count("\n\n") < len(sentences) / 3


def test_echo_repeats_the_message_and_stops() -> None:
    plan = make_planner("echo").plan(make_request(echo_text="Hello, wörld \U0001f600!"))
    assert read_plan(tokenizer(), plan).content == "Hello, wörld \U0001f600!"
    assert plan.finish_reason == "stop"
    assert not plan.plain


def test_echo_without_text_repeats_the_prompt_ids() -> None:
    assert make_planner("echo").plan(make_request()).to_list() == PROMPT


def test_echo_goes_round_until_enough_tokens_are_there() -> None:
    planner = make_planner("echo")
    plan = planner.plan(make_request(echo_text="one two", max_tokens=5, ignore_eos=True))
    assert tokenizer().decode(plan) == "one twoone twoone"
    assert (len(plan), plan.finish_reason) == (5, "length")
    assert len(planner.plan(make_request(echo_text="one two", min_tokens=3))) == 3


def test_echo_of_nothing_still_has_a_token() -> None:
    assert len(make_planner("echo").plan(make_request(echo_text=""))) == 1
    assert len(make_planner("echo").plan(make_request(prompt_token_ids=[]))) == 1


def test_planned_text_ends_with_stop_or_is_cut_with_length() -> None:
    planner, text = make_planner(), '{"name": "Ada"}'
    plan = planner.plan_text(make_request(), text)
    assert (read_plan(tokenizer(), plan).content, plan.finish_reason) == (text, "stop")
    cut = planner.plan_text(make_request(max_tokens=3, ignore_eos=True), text)
    assert text.startswith(tokenizer().decode(cut)) and (len(cut), cut.finish_reason) == (3, "length")
    assert len(planner.plan_text(make_request(ignore_eos=True), text)) == len(plan)


@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(["the", ". The", "s", " and", "\n\n", "zzz", " a few m"]), max_size=3),
    st.integers(0, 40),
)
def test_plan_with_stops_ends_where_its_stream_stops(seed: int, stops: list[str], min_tokens: int) -> None:
    request = make_request(
        seed=seed, max_tokens=120, ignore_eos=True, stop=tuple(stops), min_tokens=min_tokens
    )
    whole = make_planner().plan(replace(request, stop=())).to_list()
    plan = make_planner().plan(request)
    reader = PlanReader(tokenizer(), plan)
    for count, token_id in enumerate(plan, 1):
        assert not reader.stopped
        reader.push(token_id)
        assert reader.stopped == (count == len(plan) and plan.stop_reason is not None)
    assert plan.to_list() == whole[: len(plan)]
    assert plan.stop_reason == reader.stop_reason
    text = read_plan(tokenizer(), plan).content
    if plan.stop_reason is None:
        assert (len(plan), plan.finish_reason) == (120, "length")
        assert text == tokenizer().decode(whole)
    else:
        assert plan.finish_reason == "stop" and len(plan) > min_tokens
        assert tokenizer().decode(whole).startswith(text + str(plan.stop_reason))


def test_stop_token_id_ends_the_plan() -> None:
    whole = make_planner().plan(make_request(seed=1, max_tokens=60, ignore_eos=True)).to_list()
    target = whole[30]
    plan = make_planner().plan(
        make_request(seed=1, max_tokens=60, ignore_eos=True, stop_token_ids=frozenset([target]))
    )
    assert len(plan) == whole.index(target) + 1
    assert (plan.finish_reason, plan.stop_reason) == ("stop", target)
    assert read_plan(tokenizer(), plan).content == tokenizer().decode(whole[: whole.index(target)])


@given(st.integers(0, 2**32), st.integers(1, 200), st.floats(0, 1), st.booleans())
def test_reasoning_comes_first_and_everything_adds_up(
    seed: int, limit: int, ratio: float, marked: bool
) -> None:
    markers = (5, 6) if marked else (None, None)
    options = ReasoningOptions(ratio, *markers)
    plan = make_planner().plan(make_request(seed=seed, max_tokens=limit, reasoning=options))
    assert plan.segments[0].start == 0 and plan.segments[-1].end == len(plan) == len(plan.to_list()) <= limit
    assert all(one.end == two.start for one, two in pairwise(plan.segments))
    kinds = [segment.kind for segment in plan.segments if segment.kind != "marker"]
    assert kinds in (["reasoning", "content"], ["reasoning"], ["content"], [])
    text = read_plan(tokenizer(), plan)
    assert "<|" not in text.content + text.reasoning
    assert plan.plain == (kinds == ["content"] and len(plan.segments) == 1)


def test_reasoning_takes_its_share() -> None:
    plan = make_planner(mean=100, sd=0).plan(make_request(reasoning=ReasoningOptions(0.3)))
    assert [(seg.kind, seg.start, seg.end) for seg in plan.segments] == [
        ("reasoning", 0, 30),
        ("content", 30, 100),
    ]
    text = read_plan(tokenizer(), plan)
    assert text.reasoning[0].isupper() and text.content[0].isupper()
    assert text.reasoning.endswith(".") and text.content.endswith(".")


def test_given_reasoning_text_goes_before_the_planned_text() -> None:
    plan = make_planner().plan_text(make_request(), "Four.", reasoning_text="Two and two.")
    text = read_plan(tokenizer(), plan)
    assert (text.reasoning, text.content, plan.finish_reason) == ("Two and two.", "Four.", "stop")


def test_tool_calls_are_read_back_as_planned() -> None:
    calls = [ToolCallText("get_weather", '{"city":"Paris"}'), ToolCallText("get_time", "{}")]
    plan = make_planner().plan_tool_calls(make_request(), calls, "Let me look.")
    text = read_plan(tokenizer(), plan)
    assert (text.content, text.tool_calls, plan.finish_reason) == ("Let me look.", calls, "tool_calls")
    reader = PlanReader(tokenizer(), plan)
    deltas = [delta for token_id in plan for delta in reader.push(token_id)]
    begins = [(delta.index, delta.name) for delta in deltas if delta.begins]
    assert begins == [(0, "get_weather"), (1, "get_time")]


def test_cut_tool_call_ends_with_length() -> None:
    plan = make_planner().plan_tool_calls(
        make_request(max_tokens=6), [ToolCallText("f", '{"a":"' + "x y " * 50 + '"}')]
    )
    assert (len(plan), plan.finish_reason) == (6, "length")


@given(st.integers(0, 2**32), st.sampled_from(["a", "e", "th", "zzz"]))
def test_streamed_deltas_join_to_the_unstreamed_text(seed: int, stop: str) -> None:
    request = make_request(seed=seed, max_tokens=80, stop=(stop,), reasoning=ReasoningOptions(0.4))
    plan = make_planner().plan(request)
    reader = PlanReader(tokenizer(), plan)
    deltas = [delta for token_id in plan for delta in reader.push(token_id)] + reader.finish()
    text = read_plan(tokenizer(), plan)
    assert "".join(delta.text for delta in deltas if delta.kind == "reasoning") == text.reasoning
    assert "".join(delta.text for delta in deltas if delta.kind == "content") == text.content
    assert stop not in text.content and stop not in text.reasoning
