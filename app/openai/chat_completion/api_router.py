"""The hot route of chat completions."""

from __future__ import annotations

from app.openai.chat_completion.protocol import ChatCompletion, ChatCompletionChunk, ChatCompletionRequest
from app.openai.chat_completion.serving import start_chat
from app.openai.stored.api_router import document_types
from app.routes import HotRoute

route = HotRoute(
    path="/v1/chat/completions",
    name="create_chat_completion",
    summary="Answer a conversation, whole or as a stream",
    tag="OpenAI",
    start=start_chat,
    request=ChatCompletionRequest,
    response=ChatCompletion,
    chunk=ChatCompletionChunk,
    more=document_types,
)
