"""The routes of /v1/messages."""

from __future__ import annotations

from typing import Any

from app.anthropic.errors import PATH, write_error
from app.anthropic.protocol import (
    AnthropicError,
    CountTokensRequest,
    Message,
    MessagesRequest,
    MessageStreamEvent,
    MessageTokensCount,
)
from app.anthropic.serving import start_count, start_message
from app.routes import HotRoute

_REQUEST: dict[str, Any] = {
    "model": "mocker",
    "max_tokens": 64,
    "messages": [{"role": "user", "content": "Say something nice."}],
}
_MESSAGE: dict[str, Any] = {
    "id": "msg_5b1e",
    "type": "message",
    "role": "assistant",
    "model": "mocker",
    "content": [{"type": "text", "text": "The day is bright."}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 14,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 5,
    },
}

hot_routes = [
    HotRoute(
        path=PATH,
        name="create_message",
        summary="Answer a conversation in Anthropic's shape, whole or as a stream",
        tag="Anthropic",
        start=start_message,
        request=MessagesRequest,
        response=Message,
        chunk=MessageStreamEvent,
        stream_ends="",
        error=AnthropicError,
        write_error=write_error,
        request_example=_REQUEST,
        response_example=_MESSAGE,
    ),
    HotRoute(
        path=f"{PATH}/count_tokens",
        name="count_message_tokens",
        summary="Count the tokens that a conversation would have",
        tag="Anthropic",
        start=start_count,
        request=CountTokensRequest,
        response=MessageTokensCount,
        error=AnthropicError,
        write_error=write_error,
        request_example={key: value for key, value in _REQUEST.items() if key != "max_tokens"},
        response_example={"input_tokens": 14},
    ),
]
