"""Examples for operations of the OpenAPI document that do not carry their own.

A test sends every request example to a server and checks every example against its schema.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

_HANDOFF = {"handoff_id": "h1", "request": {"prompt": "Hello there", "max_tokens": 8}}
_HANDOFF_ID = {"handoff_id": "h1"}
_APPLIED = {"result": "applied"}
_CARD = {
    "id": "mocker",
    "object": "model",
    "created": 1764592800,
    "owned_by": "vllm",
    "root": "mocker",
    "parent": None,
    "max_model_len": 1048576,
    "permission": [],
}
_RECORD = {"handoff_id": "h1", "request_id": "handoff-h1", "state": "done"}
_USAGE = {"prompt_tokens": 14, "completion_tokens": 5, "total_tokens": 19}

REQUESTS: dict[tuple[str, str], Any] = {
    ("post", "/v1/chat/completions"): {
        "model": "mocker",
        "messages": [{"role": "user", "content": "Say something nice."}],
        "max_tokens": 64,
        "stream": False,
    },
    ("post", "/v1/chat/completions/{completion_id}"): {"metadata": {"run": "8"}},
    ("post", "/v1/completions"): {"model": "mocker", "prompt": "Once upon a time", "max_tokens": 16},
    ("post", "/admin/handoff/prefill"): _HANDOFF,
    ("post", "/admin/handoff/destination/reserve"): _HANDOFF,
    ("post", "/admin/handoff/destination/activate"): _HANDOFF_ID,
    ("post", "/admin/handoff/destination/cancel"): _HANDOFF_ID,
    ("post", "/admin/handoff/source/release"): _HANDOFF_ID,
    ("post", "/admin/handoff/source/cancel"): _HANDOFF_ID,
    ("post", "/admin/handoffs"): {**_HANDOFF, "source": {"dp_rank": 0}, "destination": {"dp_rank": 1}},
    ("post", "/pd/holds/{hold_id}/claim"): {
        "engine_id": "e1",
        "prompt_tokens": 14,
        "prompt_hash": "9ae16a3b2f90404f",
    },
}

RESPONSES: dict[tuple[str, str], Any] = {
    ("post", "/v1/chat/completions"): {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1764592800,
        "model": "mocker",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "The day is bright.", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
                "stop_reason": None,
            }
        ],
        "usage": _USAGE,
        "service_tier": None,
        "system_fingerprint": None,
    },
    ("post", "/v1/completions"): {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 1764592800,
        "model": "mocker",
        "choices": [{"index": 0, "text": " the sea was calm.", "logprobs": None, "finish_reason": "length"}],
        "usage": _USAGE,
        "system_fingerprint": None,
    },
    ("post", "/v1/moderations"): {
        "id": "modr-1",
        "model": "omni-moderation-latest",
        "results": [
            {"flagged": False, "categories": {"violence": False}, "category_scores": {"violence": 0.002}}
        ],
    },
    ("get", "/v1/models"): {"object": "list", "data": [_CARD]},
    ("get", "/v1/models/{model}"): _CARD,
    ("post", "/v1/load_lora_adapter"): "Success: LoRA adapter 'sql' added successfully.",
    ("post", "/v1/unload_lora_adapter"): "Success: LoRA adapter 'sql' removed successfully.",
    ("get", "/version"): {"version": "0.1.0"},
    ("get", "/load"): {"server_load": 3},
    ("get", "/is_sleeping"): {"is_sleeping": False},
    ("get", "/server_info"): {"mocker_config": {"model": "mocker"}, "version": "0.1.0"},
    ("get", "/metrics"): 'vllm:num_requests_running{engine="0",model_name="mocker"} 3.0\n',
    ("get", "/admin/config"): {
        "live": {"speedup_ratio": 1.0, "timing_model": {"type": "polynomial"}, "faults": {"error": 0.0}},
        "content": None,
        "settings": {"model": "mocker"},
    },
    ("get", "/admin/metrics"): {
        "engine_time_ms": 812.5,
        "state": "ready",
        "ranks": [{"dp_rank": 0, "running_requests": 3, "waiting_requests": 0}],
    },
    ("post", "/admin/requests/{request_id}/cancel"): _APPLIED,
    ("post", "/pd/holds/{hold_id}/cancel"): _APPLIED,
    ("post", "/pd/holds/{hold_id}/release"): _APPLIED,
    ("post", "/admin/handoff/destination/activate"): _APPLIED,
    ("post", "/admin/handoff/destination/cancel"): _APPLIED,
    ("post", "/admin/handoff/source/release"): _APPLIED,
    ("post", "/admin/handoff/source/cancel"): _APPLIED,
    ("get", "/admin/handoffs/{handoff_id}"): _RECORD,
}
RESPONSES["patch", "/admin/config"] = RESPONSES["get", "/admin/config"]


def add_examples(document: dict[str, Any]) -> dict[str, Any]:
    """The same document with these examples where an operation has none."""
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            key = (method, path)
            _add(operation.get("requestBody", {}).get("content", {}), REQUESTS.get(key))
            for status in ("200", "202"):
                if status in operation["responses"]:
                    _add(operation["responses"][status].get("content", {}), RESPONSES.get(key))
                    break
    return document


def restore_nulls(document: dict[str, Any], routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """The same document with the routes' own response examples as they were declared.

    FastAPI takes every null out of its document, also out of examples, where a required field may be null.
    """
    for route in routes:
        if not isinstance(route, APIRoute) or not route.include_in_schema:
            continue
        for method in route.methods or ():
            operation = document["paths"][route.path_format][method.lower()]
            for status, answer in route.responses.items():
                for kind, media in answer.get("content", {}).items():
                    if "example" in media:
                        operation["responses"][str(status)]["content"][kind]["example"] = media["example"]
    return document


def _add(content: dict[str, Any], example: Any) -> None:
    """Streams have none: their media type comes second."""
    for media in content.values():
        if example is not None and not media.keys() & {"example", "examples"}:
            media["example"] = example
        return
