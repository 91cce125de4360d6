from __future__ import annotations

import pytest

from app.errors import (
    ApiError,
    bad_request,
    context_too_long,
    error_object,
    from_exception,
    model_not_found,
    schema_error,
)
from mocker_core.errors import (
    ArgumentError,
    DuplicateIdError,
    EngineDeadError,
    HandoffProtocolError,
    MockerError,
    RequestError,
    WrongWorkerTypeError,
)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (RequestError("r."), 400),
        (ArgumentError("a."), 400),
        (HandoffProtocolError("h."), 400),
        (MockerError("m."), 400),
        (DuplicateIdError("d."), 409),
        (WrongWorkerTypeError("w."), 409),
        (EngineDeadError("e."), 503),
        (ValueError("inside"), 500),
    ],
)
def test_each_core_error_has_one_status(error: Exception, status: int) -> None:
    got = from_exception(error)
    assert got.status == status
    assert (got.message == str(error)) == (status != 500)


def test_an_api_error_is_its_own_answer() -> None:
    error = ApiError(418, "Tea.")
    assert from_exception(error) is error


@pytest.mark.parametrize(
    ("error", "vllm", "openai"),
    [
        (bad_request("b.", "n"), ("BadRequestError", "n", 400), ("invalid_request_error", "n", None)),
        (schema_error("s.", "n"), ("Bad Request", "body.n", 400), ("invalid_request_error", "n", None)),
        (
            model_not_found("x"),
            ("NotFoundError", "model", 404),
            ("invalid_request_error", "model", "model_not_found"),
        ),
        (
            context_too_long(10, 9, 5, "messages"),
            ("BadRequestError", "messages", 400),
            ("invalid_request_error", "messages", "context_length_exceeded"),
        ),
        (
            from_exception(EngineDeadError("dead.")),
            ("ServiceUnavailableError", None, 503),
            ("server_error", None, "engine_dead"),
        ),
    ],
)
def test_the_profiles_differ_in_type_param_and_code(
    error: ApiError, vllm: tuple[object, ...], openai: tuple[object, ...]
) -> None:
    for profile, wanted in (("vllm", vllm), ("openai", openai)):
        got = error_object(error, profile)
        assert list(got) == ["message", "type", "param", "code"]
        assert (got["type"], got["param"], got["code"]) == wanted
