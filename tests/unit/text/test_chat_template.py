from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.text.chat_template import ChatTemplate, ChatTemplateError, PartTokens, last_user_text, message_text
from app.text.generator import OutputPlanner, PlanRequest
from app.text.plan import ToolCallText
from app.text.plan_reader import read_plan
from app.text.tokenizer import BuiltinTokenizer

Message = dict[str, Any]


@cache
def tokenizer() -> BuiltinTokenizer:
    return BuiltinTokenizer()


@cache
def template() -> ChatTemplate:
    return ChatTemplate(tokenizer())


@cache
def planner() -> OutputPlanner:
    return OutputPlanner(tokenizer())


def user(content: Any, **fields: Any) -> Message:
    return {"role": "user", "content": content, **fields}


def render(messages: list[Message], **options: Any) -> str:
    return tokenizer().decode(template().encode(messages, **options))


def test_each_role_is_rendered_with_its_markers() -> None:
    messages = [{"role": "system", "content": "Be brief."}, user("Hi", name="Ada")]
    assert render(messages) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user Ada\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert render(messages, add_generation_prompt=False).endswith("Hi<|im_end|>\n")


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool", "function"])
def test_every_role_is_accepted_and_shown(role: str) -> None:
    assert f"<|im_start|>{role}\nx<|im_end|>" in render([{"role": role, "content": "x"}])


@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), max_size=4), st.text(max_size=20))
def test_growing_conversation_keeps_its_prefix(turns: list[tuple[str, str]], question: str) -> None:
    messages: list[Message] = []
    previous: list[int] = []
    for asked, answered in [*turns, (question, "")]:
        messages.append(user(asked))
        ids = template().encode(messages)
        assert ids[: len(previous)] == previous
        previous = ids
        messages.append({"role": "assistant", "content": answered})


def test_answer_sent_back_as_text_continues_the_generated_tokens() -> None:
    messages = [user("Tell me a story.")]
    prompt = template().encode(messages)
    for turn in range(4):
        answer = planner().plan(PlanRequest(f"turn-{turn}", prompt, 60 + turn, ignore_eos=True))
        generated = prompt + answer.to_list()
        messages += [{"role": "assistant", "content": tokenizer().decode(answer)}, user("Go on.")]
        prompt = template().encode(messages)
        assert prompt[: len(generated)] == generated


def test_tool_calls_sent_back_continue_the_generated_tokens() -> None:
    messages: list[Message] = [user("Weather?")]
    prompt = template().encode(messages)
    calls = [
        ToolCallText("get_weather", '{"city":"Paris","days":3}'),
        ToolCallText("get_time", '{"zone":"CET"}'),
    ]
    plan = planner().plan_tool_calls(PlanRequest("t", prompt, 500), calls, "One moment.")
    text = read_plan(tokenizer(), plan)
    wire = [
        {"id": "c", "type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in calls
    ]
    messages.append({"role": "assistant", "content": text.content, "tool_calls": wire})
    messages.append({"role": "tool", "tool_call_id": "c", "content": "sunny"})
    generated = prompt + plan.to_list()
    assert template().encode(messages)[: len(generated)] == generated


@pytest.mark.parametrize("content", [None, "", []])
def test_assistant_without_content_is_accepted(content: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert "<|tool_call|>f<|tool_args|>{}" in render(
        [{"role": "assistant", "content": content, "tool_calls": [call]}]
    )


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "input_text", "text": "two"}, " three"]
    assert render([user(parts)]) == render([user("one "), user("x")])[:0] + render([user("one two three")])
    assert message_text(user(parts)) == "one two three"


@pytest.mark.parametrize(
    ("part", "count"),
    [
        ({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}, 256),
        ({"type": "image_url", "image_url": {"url": "data:x", "detail": "low"}}, 85),
        ({"type": "input_image", "image_url": "data:x", "detail": "low"}, 85),
        ({"type": "input_audio", "input_audio": {"data": "aaaa", "format": "wav"}}, 128),
        ({"type": "file", "file": {"file_id": "f"}}, 512),
        ({"type": "video_url", "video_url": {"url": "data:x"}}, 1024),
    ],
)
def test_other_parts_count_as_fixed_placeholders(part: Message, count: int) -> None:
    text = {"type": "text", "text": "Look"}
    without, ids = template().encode([user([text])]), template().encode([user([text, part])])
    assert len(ids) - len(without) == count
    assert all(token_id < 2**32 for token_id in ids)


def test_placeholder_numbers_can_be_set() -> None:
    small = ChatTemplate(tokenizer(), PartTokens(image=3))
    image = {"type": "image_url", "image_url": {"url": "data:x"}}
    assert len(small.encode([user([image])])) - len(small.encode([user("")])) == 3


def test_same_image_is_the_same_prefix_and_another_is_not() -> None:
    def encode(url: str) -> list[int]:
        return template().encode([user([{"type": "image_url", "image_url": {"url": url}}])])

    assert encode("data:a") == encode("data:a") != encode("data:b")


def test_tools_count_as_prompt_tokens_before_the_messages() -> None:
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
    text = render([user("x")], tools=[tool])
    assert text.startswith("<|im_start|>tools\n") and "get_weather" in text.split("<|im_end|>")[0]


def test_continued_final_message_stays_open() -> None:
    messages = [user("Say it."), {"role": "assistant", "content": "I said"}]
    text = render(messages, add_generation_prompt=False, continue_final_message=True)
    assert text.endswith("<|im_start|>assistant\nI said")


def test_marker_in_a_message_stays_text() -> None:
    ids = template().encode([user("<|im_end|>")], add_generation_prompt=False)
    assert ids.count(tokenizer().marker("<|im_end|>")[0]) == 1


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ([{"content": "x"}], "messages.0.role"),
        ([user("x"), {"role": "robot", "content": "x"}], "messages.1.role"),
        ([user(5)], "messages.0.content"),
        ([user([{"type": "hologram"}])], "messages.0.content.0.type"),
        ([user([{"type": "text"}])], "messages.0.content.0"),
        ([user([7])], "messages.0.content.0.type"),
        ([{"role": "assistant", "tool_calls": [{"id": "x"}]}], "messages.0.tool_calls.0"),
    ],
)
def test_wrong_messages_name_the_culprit(messages: list[Message], param: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        template().encode(messages)
    assert caught.value.param == param


def test_both_flags_at_once_are_refused() -> None:
    with pytest.raises(ChatTemplateError, match="add_generation_prompt"):
        template().encode([user("x")], add_generation_prompt=True, continue_final_message=True)


def test_last_user_text_skips_what_came_after_it() -> None:
    messages = [
        user("one"),
        user([{"type": "text", "text": "two"}]),
        {"role": "assistant", "content": "three"},
    ]
    assert last_user_text(messages) == "two"
    assert last_user_text([{"role": "system", "content": "x"}]) == ""
