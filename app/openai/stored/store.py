"""Keeps a chat completion, once it is complete, with the messages that it answered. Bounded.

Must not know HTTP; how a whole body is made comes in as a function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.errors import ApiError
from app.json_body import encode_body
from app.openai.answer import RunGroup
from app.openai.bounded_store import BoundedStore
from app.openai.metadata import check_metadata
from app.state import AppState
from app.text.chat_template import message_text

_KEY = "stored_chats"
_CONTENT_PARTS = ("text", "image_url")


@dataclass(frozen=True, slots=True)
class StoredChat:
    """`body`: the chat.completion object with its metadata. `messages`: as they were sent."""

    body: dict[str, Any]
    messages: Sequence[Mapping[str, Any]]
    weight_bytes: int

    @property
    def id(self) -> str:
        ident: str = self.body["id"]
        return ident

    def shown_messages(self) -> list[dict[str, Any]]:
        """The messages as OpenAI lists them: text beside the parts, each with an id."""
        return [_shown(message, f"{self.id}-{at}") for at, message in enumerate(self.messages)]


def chat_store(state: AppState) -> BoundedStore[StoredChat]:
    """The server's store, made when it is first needed."""
    found = state.extras.get(_KEY)
    if found is None:
        found = state.extras[_KEY] = BoundedStore[StoredChat](weigh=lambda chat: chat.weight_bytes)
    store: BoundedStore[StoredChat] = found
    return store


def find_chat(state: AppState, completion_id: str) -> StoredChat:
    """Raises ApiError 404."""
    found = chat_store(state).get(completion_id)
    if found is None:
        raise ApiError(
            404,
            f"Chat completion with id '{completion_id:.100}' not found; only store: true keeps one.",
            code="not_found",
        )
    return found


def keep_when_complete(
    state: AppState,
    answer: RunGroup,
    messages: Sequence[Mapping[str, Any]],
    metadata: Mapping[str, Any] | None,
    build: Callable[[], dict[str, Any]],
) -> None:
    """Store the answer at its end. Raises ApiError 400 for metadata that is not allowed."""
    pairs = check_metadata(metadata)

    def keep() -> None:
        if any(run.finish_reason == "abort" for run in answer.runs):
            return
        body = {**build(), "metadata": pairs}
        weight = len(encode_body(body)) + len(encode_body(messages, default=str))
        chat_store(state).put(body["id"], StoredChat(body, messages, weight))

    answer.on_complete = keep


def _shown(message: Mapping[str, Any], ident: str) -> dict[str, Any]:
    content = message.get("content")
    parts = None
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, Mapping) and part.get("type") in _CONTENT_PARTS]
        content = message_text(message) or None
    return {"name": None, **message, "id": ident, "content": content, "content_parts": parts}
