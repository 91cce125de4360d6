"""Shapes of /v1/responses: the request, and the answers as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from app.openai.protocol import GenerationRequest


class TextConfig(Struct):
    """`format`: text, json_object, or json_schema with name and schema beside the type."""

    format: dict[str, Any] | None = None
    verbosity: str | None = None


class ReasoningConfig(Struct):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class InputFields(GenerationRequest, kw_only=True):
    """What decides the tokens of the prompt; also all that /v1/responses/input_tokens takes."""

    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningConfig | None = None
    text: TextConfig | None = None
    tool_choice: str | dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    truncation: Literal["auto", "disabled"] | None = None


class InputTokensRequest(InputFields, kw_only=True):
    """The same fields; those that do not change the prompt have no effect."""


class ResponsesRequest(InputFields, kw_only=True):
    """OpenAI's parameters, then those of vLLM that all routes take (seed, stop, ignore_eos, ...)."""

    background: bool | None = None
    include: list[str] | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, Any] | None = None
    prompt: dict[str, Any] | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    store: bool | None = None
    top_logprobs: int | None = None


class OutputText(Struct):
    text: str
    type: Literal["output_text"] = "output_text"
    annotations: list[dict[str, Any]] = []
    logprobs: list[dict[str, Any]] = []


class ReasoningText(Struct):
    text: str
    type: Literal["reasoning_text"] = "reasoning_text"


class OutputMessage(Struct, tag_field="type", tag="message"):
    id: str
    content: list[OutputText]
    status: Literal["in_progress", "completed", "incomplete"]
    role: Literal["assistant"] = "assistant"


class ReasoningItem(Struct, tag_field="type", tag="reasoning"):
    id: str
    summary: list[dict[str, Any]]
    content: list[ReasoningText]
    status: Literal["in_progress", "completed", "incomplete"]
    encrypted_content: str | None = None


class FunctionCallItem(Struct, tag_field="type", tag="function_call"):
    id: str
    call_id: str
    name: str
    arguments: str
    status: Literal["in_progress", "completed", "incomplete"]


class InputTokensDetails(Struct):
    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(Struct):
    reasoning_tokens: int


class ResponseUsage(Struct):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(Struct):
    reason: Literal["max_output_tokens", "content_filter"]


class ResponseFailure(Struct):
    code: str
    message: str


class Response(Struct, kw_only=True):
    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    background: bool
    completed_at: int | None
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    metadata: dict[str, str]
    model: str
    output: list[OutputMessage | ReasoningItem | FunctionCallItem]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: dict[str, Any]
    safety_identifier: str | None
    service_tier: str
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: int
    top_p: float
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None
    user: str | None
    kv_transfer_params: dict[str, Any] | UnsetType = UNSET


class ResponseStreamEvent(Struct):
    """One `data:` record; the `event:` line before it has the same type. `sequence_number` rises by one."""

    type: str
    sequence_number: int
    response: Response | UnsetType = UNSET
    item_id: str | UnsetType = UNSET
    output_index: int | UnsetType = UNSET
    content_index: int | UnsetType = UNSET
    item: dict[str, Any] | UnsetType = UNSET
    part: dict[str, Any] | UnsetType = UNSET
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
    logprobs: list[dict[str, Any]] | UnsetType = UNSET


class ResponseItemList(Struct):
    data: list[dict[str, Any]]
    first_id: str
    last_id: str
    has_more: bool
    object: Literal["list"] = "list"


class ResponseDeleted(Struct):
    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class InputTokens(Struct):
    input_tokens: int
    object: Literal["response.input_tokens"] = "response.input_tokens"


decoder = msgspec.json.Decoder(ResponsesRequest)
input_tokens_decoder = msgspec.json.Decoder(InputTokensRequest)
