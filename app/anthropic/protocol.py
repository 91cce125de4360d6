"""Shapes of /v1/messages: the request, and the answers as the OpenAPI document shows them."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from app.openai.protocol import GenerationRequest


class ThinkingConfig(Struct):
    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: int | None = None
    display: str | None = None


class OutputConfig(Struct):
    """`format`: json_schema with its schema beside the type."""

    effort: str | None = None
    format: dict[str, Any] | None = None


class CountTokensRequest(GenerationRequest, kw_only=True):
    """What decides the tokens of the prompt; the fields of vLLM's other routes have no effect on it."""

    messages: list[dict[str, Any]]
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None


class MessagesRequest(CountTokensRequest, kw_only=True):
    """Anthropic's parameters, then those of vLLM that all routes take (seed, ignore_eos, min_tokens, ...)."""

    max_tokens: int
    metadata: dict[str, Any] | None = None
    service_tier: str | None = None
    stop_sequences: list[str] | None = None


class TextBlock(Struct, tag_field="type", tag="text"):
    text: str
    citations: list[dict[str, Any]] | None = None


class ThinkingBlock(Struct, tag_field="type", tag="thinking"):
    thinking: str
    signature: str


class ToolUseBlock(Struct, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


class MessageUsage(Struct):
    """`input_tokens` are those that did not come from the prefix cache."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: dict[str, int] | UnsetType = UNSET


class Message(Struct, kw_only=True):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: list[TextBlock | ThinkingBlock | ToolUseBlock]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"] | None
    stop_sequence: str | None
    usage: MessageUsage
    kv_transfer_params: dict[str, Any] | UnsetType = UNSET


class MessageStreamEvent(Struct):
    """One `data:` record; the `event:` line before it has the same type."""

    type: str
    message: Message | UnsetType = UNSET
    index: int | UnsetType = UNSET
    content_block: dict[str, Any] | UnsetType = UNSET
    delta: dict[str, Any] | UnsetType = UNSET
    usage: MessageUsage | UnsetType = UNSET


class MessageTokensCount(Struct):
    input_tokens: int


class AnthropicErrorDetail(Struct):
    type: str
    message: str


class AnthropicError(Struct):
    """The one envelope of every error under /v1/messages."""

    error: AnthropicErrorDetail
    type: Literal["error"] = "error"


decoder = msgspec.json.Decoder(MessagesRequest)
count_decoder = msgspec.json.Decoder(CountTokensRequest)
