"""The routes of stored chat completions."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel

from app.openai.metadata import check_metadata, has_metadata
from app.openai.pages import After, Limit, Order, answer_of, page_of
from app.openai.stored.protocol import (
    ChatCompletionDeleted,
    StoredChatCompletion,
    StoredChatCompletionList,
    StoredMessageList,
)
from app.openai.stored.store import chat_store, find_chat
from app.state import State

# Types that only this router's routes refer to in the OpenAPI document.
document_types = (StoredChatCompletion, StoredChatCompletionList, StoredMessageList, ChatCompletionDeleted)

router = APIRouter(prefix="/v1/chat/completions", tags=["OpenAI"])

_COMPLETION: dict[str, Any] = {
    "id": "chatcmpl-5b1e",
    "object": "chat.completion",
    "created": 1764592800,
    "model": "mocker",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "The day is bright.", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 14, "completion_tokens": 5, "total_tokens": 19},
    "service_tier": None,
    "system_fingerprint": None,
    "metadata": {"run": "7"},
}
_MESSAGE: dict[str, Any] = {
    "id": "chatcmpl-5b1e-0",
    "role": "user",
    "content": "Say something nice.",
    "name": None,
    "content_parts": None,
}


class ChatCompletionUpdate(BaseModel):
    """What of a stored completion can change."""

    metadata: dict[str, Any] | None

    model_config = {"json_schema_extra": {"example": {"metadata": {"run": "8"}}}}


@router.get(
    "",
    summary="Chat completions that were sent with store: true",
    response_model=None,
    responses=answer_of(StoredChatCompletionList, page_of([_COMPLETION])),
)
async def list_chat_completions(
    request: Request,
    state: State,
    after: After = None,
    limit: Limit = 20,
    model: Annotated[str | None, Query()] = None,
    order: Order = "asc",
) -> dict[str, Any]:
    """A filter by metadata is written `metadata[key]=value`."""
    wanted = {
        key.removeprefix("metadata[").removesuffix("]"): value
        for key, value in request.query_params.items()
        if key.startswith("metadata[") and key.endswith("]")
    }
    bodies = [
        chat.body
        for chat in chat_store(state)
        if has_metadata(chat.body["metadata"], wanted) and model in (None, chat.body["model"])
    ]
    return page_of(bodies, after, limit, order)


@router.get(
    "/{completion_id}",
    summary="A stored chat completion",
    response_model=None,
    responses=answer_of(StoredChatCompletion, _COMPLETION),
)
async def get_chat_completion(completion_id: str, state: State) -> dict[str, Any]:
    return find_chat(state, completion_id).body


@router.post(
    "/{completion_id}",
    summary="Replace the metadata of a stored chat completion",
    response_model=None,
    responses=answer_of(StoredChatCompletion, _COMPLETION),
)
async def update_chat_completion(
    completion_id: str, body: ChatCompletionUpdate, state: State
) -> dict[str, Any]:
    chat = find_chat(state, completion_id)
    changed = replace(chat, body={**chat.body, "metadata": check_metadata(body.metadata)})
    chat_store(state).replace(completion_id, changed)
    return changed.body


@router.delete(
    "/{completion_id}",
    summary="Forget a stored chat completion",
    response_model=None,
    responses=answer_of(
        ChatCompletionDeleted,
        {"id": "chatcmpl-5b1e", "object": "chat.completion.deleted", "deleted": True},
    ),
)
async def delete_chat_completion(completion_id: str, state: State) -> dict[str, Any]:
    find_chat(state, completion_id)
    chat_store(state).pop(completion_id)
    return {"id": completion_id, "object": "chat.completion.deleted", "deleted": True}


@router.get(
    "/{completion_id}/messages",
    summary="The messages that a stored chat completion answered",
    response_model=None,
    responses=answer_of(StoredMessageList, page_of([_MESSAGE])),
)
async def list_chat_messages(
    completion_id: str, state: State, after: After = None, limit: Limit = 20, order: Order = "asc"
) -> dict[str, Any]:
    messages = find_chat(state, completion_id).shown_messages()
    return page_of(messages, after, limit, order)
