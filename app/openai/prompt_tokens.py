"""A request's prompt as token ids: a conversation through the chat template, and truncate_prompt_tokens.

What the routes of all APIs share; must not know the fields of one route's request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.errors import bad_request
from app.openai.serving import tokenised
from app.state import AppState
from app.text.chat_template import ChatTemplateError


async def conversation_tokens(
    state: AppState,
    messages: Sequence[Mapping[str, Any]],
    text_chars: int,
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool | None = None,
    continue_final_message: bool = False,
) -> list[int]:
    """Messages in Chat's shape. Raises ApiError 400 with the place of what cannot be rendered.

    `text_chars`: about how much text there is. `add_generation_prompt` None: unless the last message goes on.
    """
    opening = not continue_final_message if add_generation_prompt is None else add_generation_prompt

    def encode() -> list[int]:
        return state.template.encode(
            messages,
            tools=tools or None,
            add_generation_prompt=opening,
            continue_final_message=continue_final_message,
        )

    try:
        return await tokenised(encode, text_chars)
    except ChatTemplateError as error:
        raise bad_request(str(error), error.param) from None


def last_tokens(prompt: list[int], keep: int | None) -> list[int]:
    """What truncate_prompt_tokens leaves of a prompt; None and numbers below 1 leave all."""
    return prompt if keep is None or keep < 1 else prompt[-keep:]
