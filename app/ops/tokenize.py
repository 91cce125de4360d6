"""POST /tokenize and /detokenize in vLLM's shapes: what the engine counts for a text or a conversation."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson
from msgspec import Struct

from app.errors import bad_request
from app.openai.answer import JSON_HEADERS
from app.openai.completion.prompts import parse_prompts
from app.openai.prompt_tokens import conversation_tokens
from app.openai.protocol import decode_body
from app.openai.serving import Incoming, tokenised
from app.openai.tool_choice import check_tools
from app.routes import HotRoute
from app.state import AppState
from app.stream_response import HotResponse


class TokenizeRequest(Struct, kw_only=True):
    """Either `prompt` or `messages`, with what belongs to it."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class TokenizeResponse(Struct):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeRequest(Struct, kw_only=True):
    tokens: list[int]
    model: str | None = None


class DetokenizeResponse(Struct):
    prompt: str


_tokenize_decoder = msgspec.json.Decoder(TokenizeRequest)
_detokenize_decoder = msgspec.json.Decoder(DetokenizeRequest)


async def start_tokenize(state: AppState, incoming: Incoming, response: HotResponse) -> None:
    """The token ids of a prompt or of rendered messages."""
    request = decode_body(_tokenize_decoder, incoming.body)
    state.models.resolve(request.model)
    tokens = await _tokens(state, request, len(incoming.body))
    body: dict[str, Any] = {
        "count": len(tokens),
        "max_model_len": state.max_model_len,
        "tokens": tokens,
        "token_strs": None,
    }
    if request.return_token_strs:
        texts = state.tokenizer.token_text
        body["token_strs"] = await tokenised(lambda: [texts(token) for token in tokens], len(incoming.body))
    response.respond(200, JSON_HEADERS, orjson.dumps(body))
    response.write()


async def start_detokenize(state: AppState, incoming: Incoming, response: HotResponse) -> None:
    """The text of token ids."""
    request = decode_body(_detokenize_decoder, incoming.body)
    state.models.resolve(request.model)
    ids = (parse_prompts(request.tokens, "tokens")[0].token_ids if request.tokens else None) or []
    text = await tokenised(lambda: state.tokenizer.decode(ids), len(incoming.body))
    response.respond(200, JSON_HEADERS, orjson.dumps({"prompt": text}))
    response.write()


async def _tokens(state: AppState, request: TokenizeRequest, text_chars: int) -> list[int]:
    messages, prompt = request.messages, request.prompt
    if (messages is None) == (prompt is None):
        given = "neither prompt nor messages" if prompt is None else "both prompt and messages"
        raise bad_request(f"The request has {given}; send one of them.", "prompt")
    if messages is None:
        text = prompt or ""
        return await tokenised(lambda: state.tokenizer.encode(text), text_chars)
    check_tools(request.tools, None)
    return await conversation_tokens(
        state,
        messages,
        text_chars,
        tools=request.tools,
        add_generation_prompt=request.add_generation_prompt,
        continue_final_message=bool(request.continue_final_message),
    )


hot_routes = [
    HotRoute(
        path="/tokenize",
        name="tokenize",
        summary="The token ids of a text or a conversation",
        tag="vLLM",
        start=start_tokenize,
        request=TokenizeRequest,
        response=TokenizeResponse,
        request_example={"prompt": "Hello there", "return_token_strs": True},
        response_example={
            "count": 2,
            "max_model_len": 1048576,
            "tokens": [9906, 1070],
            "token_strs": ["Hello", " there"],
        },
    ),
    HotRoute(
        path="/detokenize",
        name="detokenize",
        summary="The text of token ids",
        tag="vLLM",
        start=start_detokenize,
        request=DetokenizeRequest,
        response=DetokenizeResponse,
        request_example={"tokens": [9906, 1070]},
        response_example={"prompt": "Hello there"},
    ),
]
