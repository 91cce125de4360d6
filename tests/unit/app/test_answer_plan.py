from __future__ import annotations

import json
from typing import Any

import pytest

from app.errors import ApiError
from app.openai.answer_plan import AnswerSpec, CannedAnswer, plan_answer
from app.text.generator import OutputPlanner
from app.text.plan import PlanRequest, ReasoningOptions, ToolCallText
from app.text.plan_reader import PlanText, read_plan
from app.text.tokenizer import BuiltinTokenizer

TOKENIZER = BuiltinTokenizer()
PLANNER = OutputPlanner(TOKENIZER)
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
OTHER = {"type": "function", "function": {"name": "clock"}}


def ask(seed: int = 1, max_tokens: int = 4000, **more: Any) -> PlanRequest:
    return PlanRequest("r", TOKENIZER.encode("Hello"), max_tokens, seed=seed, **more)


def said(spec: AnswerSpec, seed: int = 1, max_tokens: int = 4000) -> tuple[PlanText, str]:
    plan = plan_answer(PLANNER, ask(seed, max_tokens), spec)
    return read_plan(TOKENIZER, plan), plan.finish_reason


def test_no_wishes_give_the_planners_own_answer() -> None:
    assert plan_answer(PLANNER, ask()).to_list() == PLANNER.plan(ask()).to_list()


def test_tools_are_called_with_valid_arguments() -> None:
    text, finish = said(AnswerSpec(tools=[TOOL]))
    assert [call.name for call in text.tool_calls] == ["weather"]
    assert isinstance(json.loads(text.tool_calls[0].arguments)["city"], str)
    assert finish == "tool_calls"
    assert text.content == ""


@pytest.mark.parametrize("choice", ["none", None])
def test_tools_are_not_called_when_unwanted_or_answered(choice: str | None) -> None:
    text, finish = said(AnswerSpec(tools=[TOOL], tool_choice=choice, answered=choice is None))
    assert not text.tool_calls
    assert text.content
    assert finish == "stop"


def test_a_forced_call_comes_even_after_a_result() -> None:
    for seed in range(20):
        choice = {"type": "function", "function": {"name": "clock"}}
        text, _ = said(AnswerSpec(tools=[TOOL, OTHER], tool_choice=choice, answered=True), seed)
        assert [call.name for call in text.tool_calls] == ["clock"]
        text, _ = said(AnswerSpec(tools=[TOOL, OTHER], tool_choice="required", answered=True), seed)
        assert text.tool_calls


def test_allowed_tools_limit_the_choice() -> None:
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [OTHER]}}
    names = {
        call.name
        for seed in range(30)
        for call in said(AnswerSpec(tools=[TOOL, OTHER], tool_choice=allowed), seed)[0].tool_calls
    }
    assert names == {"clock"}


def test_two_calls_come_only_where_parallel_ones_may() -> None:
    both = AnswerSpec(tools=[TOOL, OTHER])
    single = AnswerSpec(tools=[TOOL, OTHER], parallel_tool_calls=False)
    counts = {len(said(both, seed)[0].tool_calls) for seed in range(40)}
    assert counts == {1, 2}
    assert {len(said(single, seed)[0].tool_calls) for seed in range(40)} == {1}


def test_a_cut_call_ends_with_length() -> None:
    whole = plan_answer(PLANNER, ask(), AnswerSpec(tools=[TOOL]))
    assert said(AnswerSpec(tools=[TOOL]), max_tokens=len(whole) - 1)[1] == "length"


def test_a_constraint_rules_the_text() -> None:
    text, finish = said(AnswerSpec(constraint={"choice": ["red", "blue"]}))
    assert text.content in ("red", "blue")
    assert finish == "stop"


def test_calls_go_before_the_constraint_of_the_text() -> None:
    spec = AnswerSpec(tools=[TOOL], constraint={"json_object": True})
    assert said(spec)[0].tool_calls
    assert isinstance(
        json.loads(
            said(AnswerSpec(tools=[TOOL], tool_choice="none", constraint={"json_object": True}))[0].content
        ),
        dict,
    )


def test_a_bad_constraint_names_its_parameter() -> None:
    with pytest.raises(ApiError) as caught:
        said(AnswerSpec(constraint={"grammar": "x"}, constraint_param="guided_grammar"))
    assert caught.value.status == 400
    assert caught.value.param == "guided_grammar"
    assert "not simulated" in caught.value.message


@pytest.mark.parametrize(
    "spec",
    [AnswerSpec(), AnswerSpec(tools=[TOOL]), AnswerSpec(constraint={"json_object": True})],
    ids=["text", "calls", "constraint"],
)
def test_reasoning_goes_before_all_kinds_of_answers(spec: AnswerSpec) -> None:
    from dataclasses import replace

    text, _ = said(replace(spec, reasoning=ReasoningOptions(0.5)))
    assert text.reasoning
    assert text.content or text.tool_calls


def test_a_canned_text_gives_way_to_a_forced_call_only() -> None:
    canned = CannedAnswer("Forty-two.")
    assert said(AnswerSpec(tools=[TOOL], canned=canned))[0].content == "Forty-two."
    assert said(AnswerSpec(constraint={"json_object": True}, canned=canned))[0].content == "Forty-two."
    assert said(AnswerSpec(tools=[TOOL], tool_choice="required", canned=canned))[0].tool_calls


def test_a_canned_answer_that_decides_is_taken_as_it_stands() -> None:
    canned = CannedAnswer(
        "Look:", "Hm.", (ToolCallText("none_such", "{broken"),), finish_reason="content_filter", decides=True
    )
    text, finish = said(AnswerSpec(tools=[TOOL], tool_choice="required", canned=canned))
    assert (text.content, text.reasoning) == ("Look:", "Hm.")
    assert text.tool_calls == [ToolCallText("none_such", "{broken")]
    assert finish == "content_filter"
    assert said(AnswerSpec(canned=canned), max_tokens=2)[1] == "length"
