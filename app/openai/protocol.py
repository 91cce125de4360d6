"""What all OpenAI bodies share: decoding with one-sentence errors, common request fields, answer shapes.

Owns types only; a request's meaning is checked in `sampling`. Unknown fields are accepted, as vLLM does.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from app.errors import ApiError, schema_error

T = TypeVar("T")


class StreamOptions(Struct, gc=False):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class GenerationRequest(Struct, kw_only=True):
    """Fields that chat and text completions have in common: OpenAI's, then vLLM's extras."""

    model: str | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    max_tokens: int | None = None
    n: int | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    user: str | None = None
    # vLLM's extras
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    length_penalty: float | None = None
    use_beam_search: bool | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: int | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    prompt_logprobs: int | None = None
    add_special_tokens: bool | None = None
    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: Any = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    guided_decoding_backend: str | None = None
    guided_whitespace_pattern: str | None = None
    logits_processors: list[Any] | None = None
    priority: int | None = None
    request_id: str | None = None
    cache_salt: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    vllm_xargs: dict[str, Any] | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    nvext: dict[str, Any] | None = None


class ErrorDetail(Struct):
    """`code` is the HTTP status in the vllm wire profile, a word or null in the openai one."""

    message: str
    type: str
    param: str | None
    code: int | str | None


class ErrorResponse(Struct):
    error: ErrorDetail


class PromptTokensDetails(Struct):
    cached_tokens: int


class CompletionTokensDetails(Struct):
    reasoning_tokens: int


class Usage(Struct):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails | UnsetType | None = UNSET
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET


def decode_body(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """The decoded request. Raises ApiError 400 with the place of the fault."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as exc:
        raise _shape_error(str(exc)) from None
    except msgspec.DecodeError as exc:
        raise _json_error(body, str(exc)) from None
    except RecursionError:
        raise schema_error("The request body is nested too deeply; use fewer levels.", None) from None


_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$?(?P<path>.*)`)?$", re.DOTALL)


def _shape_error(text: str) -> ApiError:
    match = _AT.match(text)
    assert match is not None
    path = (match["path"] or "").replace("[...]", "").lstrip(".")
    param = path.replace("[", ".").replace("]", "") or None
    what = match["what"].replace("`", "")
    where = f"{param}: " if param else "The request body is wrong: "
    return schema_error(f"{where}{what}.", param)


def _json_error(body: bytes, text: str) -> ApiError:
    if not body.strip():
        return schema_error("The request body is empty; send a JSON object.", None)
    return schema_error(f"The request body is not valid JSON: {text}.", None)
