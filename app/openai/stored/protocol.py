"""Shapes of the stored chat completions as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from app.openai.chat_completion.protocol import ChatCompletion


class StoredChatCompletion(ChatCompletion, kw_only=True):
    metadata: dict[str, str]


class StoredChatCompletionList(Struct):
    data: list[StoredChatCompletion]
    first_id: str
    last_id: str
    has_more: bool
    object: Literal["list"] = "list"


class StoredMessageList(Struct):
    data: list[dict[str, Any]]
    first_id: str
    last_id: str
    has_more: bool
    object: Literal["list"] = "list"


class ChatCompletionDeleted(Struct):
    id: str
    object: Literal["chat.completion.deleted"] = "chat.completion.deleted"
    deleted: bool = True
