"""Examples of /v1/responses for the OpenAPI document."""

from __future__ import annotations

from typing import Any

REQUEST: dict[str, Any] = {"model": "mocker", "input": "Say something nice.", "max_output_tokens": 64}
MESSAGE: dict[str, Any] = {
    "id": "msg_0f3c",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "The day is bright.", "annotations": [], "logprobs": []}],
}
RESPONSE: dict[str, Any] = {
    "id": "resp_5b1e",
    "object": "response",
    "created_at": 1764592800,
    "status": "completed",
    "background": False,
    "completed_at": 1764592801,
    "error": None,
    "incomplete_details": None,
    "instructions": None,
    "max_output_tokens": 64,
    "max_tool_calls": None,
    "metadata": {},
    "model": "mocker",
    "output": [MESSAGE],
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "usage": {
        "input_tokens": 14,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 19,
    },
    "user": None,
}
CANCELLED: dict[str, Any] = {
    **RESPONSE,
    "status": "cancelled",
    "background": True,
    "completed_at": None,
    "output": [],
    "usage": None,
}
ITEMS: dict[str, Any] = {
    "object": "list",
    "data": [
        {
            "id": "msg_in_7a2d",
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": [{"type": "input_text", "text": "Say something nice."}],
        }
    ],
    "first_id": "msg_in_7a2d",
    "last_id": "msg_in_7a2d",
    "has_more": False,
}
DELETED: dict[str, Any] = {"id": "resp_5b1e", "object": "response", "deleted": True}
COUNT_REQUEST: dict[str, Any] = {"model": "mocker", "input": "Say something nice."}
COUNT: dict[str, Any] = {"object": "response.input_tokens", "input_tokens": 14}
