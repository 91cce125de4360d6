"""Every error of the HTTP edge, and the one place where an error becomes a status and a body.

    ApiError                     an answer with a status, in OpenAI's error shape
    └── (built by bad_request, model_not_found, context_too_long, ...)

Core errors and validation errors are mapped here too. Must not know routes, requests or the engine.
"""

from __future__ import annotations

import http
from collections.abc import Mapping
from typing import Any

import orjson

from mocker_core.errors import (
    DuplicateIdError,
    EngineDeadError,
    MockerError,
    RequestError,
    WrongWorkerTypeError,
)

_VLLM_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    403: "PermissionDeniedError",
    404: "NotFoundError",
    405: "MethodNotAllowedError",
    409: "ConflictError",
    413: "RequestTooLargeError",
    429: "RateLimitError",
    501: "NotImplementedError",
    503: "ServiceUnavailableError",
}
_OPENAI_TYPES = {
    401: "invalid_request_error",
    403: "permission_error",
    429: "rate_limit_exceeded",
}
_LONGEST_MESSAGE = 1000


class ApiError(Exception):
    """An error answer. `code` and `err_type` are the openai profile's words (vllm derives its own from
    the status); `vllm_type` replaces vLLM's type name; `in_body` says that `param` names a body field
    whose schema was violated, which vLLM shows as `body.<path>`. `delay_ms`: it is sent that much later.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        err_type: str | None = None,
        vllm_type: str | None = None,
        in_body: bool = False,
        headers: Mapping[str, str] | None = None,
        delay_ms: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param
        self.code = code
        self.err_type = err_type
        self.vllm_type = vllm_type
        self.in_body = in_body
        self.headers = dict(headers or {})
        self.delay_ms = delay_ms


def bad_request(message: str, param: str | None = None, *, code: str | None = None) -> ApiError:
    """400 for a value that was understood but is not allowed."""
    return ApiError(400, _shortened(message), param=param, code=code)


def schema_error(message: str, param: str | None) -> ApiError:
    """400 for a body that does not have the right shape (never FastAPI's 422)."""
    return ApiError(400, _shortened(message), param=param, vllm_type="Bad Request", in_body=True)


def model_not_found(name: str) -> ApiError:
    return ApiError(404, f"The model `{name:.256}` does not exist.", param="model", code="model_not_found")


def _shortened(message: str) -> str:
    """A huge value of the client's does not come back to it, nor into logs."""
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}..."


def context_too_long(
    max_model_len: int, prompt_tokens: int, output_tokens: int | None, param: str
) -> ApiError:
    """400 with both numbers, in the sentence that clients look for. `param` is "messages" or "prompt"."""
    start = f"This model's maximum context length is {max_model_len} tokens. However, "
    if output_tokens is None:
        rest = f"your {param} resulted in {prompt_tokens} tokens. Please reduce the length of the {param}."
    else:
        rest = (
            f"you requested {prompt_tokens + output_tokens} tokens ({prompt_tokens} in the {param}, "
            f"{output_tokens} in the completion). Please reduce the length of the {param} or completion."
        )
    return ApiError(400, start + rest, param=param, code="context_length_exceeded")


def from_exception(exc: BaseException) -> ApiError:
    """The answer to any exception; what is not known becomes a 500 that tells nothing of the inside."""
    match exc:
        case ApiError():
            return exc
        case EngineDeadError():
            return ApiError(503, str(exc), code="engine_dead", err_type="server_error")
        case DuplicateIdError() | WrongWorkerTypeError():
            return ApiError(409, str(exc), code="conflict")
        case RequestError() | MockerError():
            return bad_request(str(exc))
        case _:
            return ApiError(
                500,
                "The server had an internal error; its log has the details.",
                code="internal_error",
                err_type="server_error",
                vllm_type="InternalServerError",
            )


def error_object(error: ApiError, profile: str) -> dict[str, Any]:
    """The inside of {"error": ...} in a wire profile ("vllm" or "openai")."""
    if profile == "openai":
        default = "server_error" if error.status >= 500 else "invalid_request_error"
        kind = error.err_type or _OPENAI_TYPES.get(error.status, default)
        return {"message": error.message, "type": kind, "param": error.param, "code": error.code}
    default = "InternalServerError" if error.status >= 500 else "BadRequestError"
    kind = error.vllm_type or _VLLM_TYPES.get(error.status, default)
    param = f"body.{error.param}" if error.in_body and error.param else error.param
    return {"message": error.message, "type": kind, "param": param, "code": error.status}


def error_body(error: ApiError, profile: str) -> bytes:
    return orjson.dumps({"error": error_object(error, profile)})


def http_status_error(status: int, detail: str | None = None) -> ApiError:
    """An error that the framework raised by status alone (no such route, wrong method)."""
    try:
        phrase = http.HTTPStatus(status).phrase
    except ValueError:
        phrase = "Error"
    return ApiError(status, detail or phrase, err_type="server_error" if status >= 500 else None)
