"""The assistant's message of a whole chat answer, from the visible text of its plan. Pure."""

from __future__ import annotations

from typing import Any

from app.text.plan_reader import PlanText
from app.text.tool_calls import call_id


def whole_message(
    text: PlanText, seed: int, profile: str, *, legacy: bool = False, reasoning: bool = True
) -> dict[str, Any]:
    """`seed`: the plan's, for the ids of calls. legacy: calls as OpenAI's deprecated function_call."""
    nothing_said = not text.content and (bool(text.tool_calls) or bool(text.reasoning))
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if nothing_said else text.content,
        "refusal": None,
    }
    if text.reasoning and reasoning:
        # Under both names that vLLM gave it in turn.
        if profile == "vllm":
            message["reasoning"] = text.reasoning
        message["reasoning_content"] = text.reasoning
    if text.tool_calls and legacy:
        call = text.tool_calls[0]
        message["function_call"] = {"name": call.name, "arguments": call.arguments}
    elif text.tool_calls:
        message["tool_calls"] = [
            {
                "id": call_id(seed, index),
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for index, call in enumerate(text.tool_calls)
        ]
    return message
