"""Checks a generation request's values and turns them into one frozen `Sampling`.

Every refusal is one sentence with the value and the allowed range, and names the parameter. Must not know
prompts, models or the engine; `wire_profile` decides where vLLM and OpenAI differ.
"""

from __future__ import annotations

from msgspec import Struct

from app.errors import ApiError, bad_request
from app.openai.protocol import GenerationRequest

_MAX_N = {"openai": 128, "vllm": 16384}
_MAX_STOPS_OPENAI = 4
_SEED_LIMIT = 2**63


class Sampling(Struct, frozen=True, kw_only=True):
    """What of the parameters has an effect here. `max_tokens` None: as long as the context allows."""

    n: int
    best_of: int
    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    seed: int | None
    stop: tuple[str, ...]
    stop_token_ids: frozenset[int]
    include_stop_str_in_output: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool
    return_token_ids: bool


def check_sampling(
    request: GenerationRequest,
    profile: str,
    *,
    max_tokens: int | None,
    max_tokens_name: str = "max_tokens",
    best_of: int | None = None,
    lowest_max_tokens: int = 1,
) -> Sampling:
    """Raises ApiError 400 for the first value out of range."""
    _check_ranges(request)
    n = _checked_choices(request, profile, best_of)
    if max_tokens is not None and max_tokens < lowest_max_tokens:
        raise bad_request(
            f"{max_tokens_name} is {max_tokens}; it must be at least {lowest_max_tokens}.", max_tokens_name
        )
    min_tokens = request.min_tokens or 0
    if min_tokens < 0 or (max_tokens is not None and min_tokens > max_tokens):
        bound = "at least 0" if min_tokens < 0 else f"at most {max_tokens_name} ({max_tokens})"
        raise bad_request(f"min_tokens is {min_tokens}; it must be {bound}.", "min_tokens")
    if request.seed is not None:
        _check_int("seed", request.seed, -_SEED_LIMIT, _SEED_LIMIT - 1)
    stream = bool(request.stream)
    options = request.stream_options
    if options is not None and not stream:
        raise bad_request("stream_options can only be set when stream is true.", "stream_options")
    if stream and best_of is not None and best_of > n:
        raise bad_request(
            f"best_of is {best_of} with n = {n}; it must equal n when stream is true.", "best_of"
        )
    return Sampling(
        n=n,
        best_of=n if best_of is None else best_of,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        ignore_eos=bool(request.ignore_eos),
        seed=request.seed,
        stop=_stops(request, profile),
        stop_token_ids=frozenset(request.stop_token_ids or ()),
        include_stop_str_in_output=bool(request.include_stop_str_in_output),
        stream=stream,
        include_usage=bool(options and options.include_usage),
        continuous_usage=bool(options and options.include_usage and options.continuous_usage_stats),
        return_token_ids=bool(request.return_token_ids),
    )


def check_top_logprobs(name: str, value: int, most: int) -> int:
    """How many alternatives to show; -1 (all of them) only where the server has no limit."""
    if value == -1 and most == -1:
        return 20
    if value < 0 or (most != -1 and value > most):
        raise bad_request(f"{name} is {value}; it must be between 0 and {most} (--max-logprobs).", name)
    return value


def _checked_choices(request: GenerationRequest, profile: str, best_of: int | None) -> int:
    n = 1 if request.n is None else request.n
    _check_int("n", n, 1, _MAX_N[profile])
    if profile == "vllm" and n > 1 and request.temperature is not None and request.temperature < 1e-5:
        raise bad_request(f"n is {n}; it must be 1 when temperature is 0 (greedy sampling).", "n")
    if best_of is not None and (best_of < n or best_of > _MAX_N[profile]):
        raise bad_request(
            f"best_of is {best_of}; it must be at least n ({n}) and at most {_MAX_N[profile]}.", "best_of"
        )
    return n


def _check_ranges(request: GenerationRequest) -> None:
    _check_float("temperature", request.temperature, 0.0, 2.0)
    _check_float("presence_penalty", request.presence_penalty, -2.0, 2.0)
    _check_float("frequency_penalty", request.frequency_penalty, -2.0, 2.0)
    _check_float("top_p", request.top_p, 0.0, 1.0, above_low=True)
    _check_float("min_p", request.min_p, 0.0, 1.0)
    _check_float("repetition_penalty", request.repetition_penalty, 0.0, None, above_low=True)
    if request.top_k is not None:
        _check_int("top_k", request.top_k, -1, None)
    if request.truncate_prompt_tokens is not None:
        _check_int("truncate_prompt_tokens", request.truncate_prompt_tokens, -1, None)
    for token, bias in (request.logit_bias or {}).items():
        if not token.isdecimal():
            raise bad_request(f"logit_bias has the key {token!r}; keys must be token ids.", "logit_bias")
        _check_float("logit_bias", bias, -100.0, 100.0)
    for token_id in request.stop_token_ids or ():
        _check_int("stop_token_ids", token_id, 0, 2**32 - 1)


def _check_int(name: str, value: int, low: int, high: int | None) -> None:
    if value < low or (high is not None and value > high):
        bound = f"at least {low}" if high is None else f"between {low} and {high}"
        raise bad_request(f"{name} is {value}; it must be {bound}.", name)


def _check_float(
    name: str, value: float | None, low: float, high: float | None, *, above_low: bool = False
) -> None:
    if value is None:
        return
    if value < low or (above_low and value == low) or (high is not None and value > high):
        start = f"above {low:g}" if above_low else f"at least {low:g}"
        raise bad_request(
            f"{name} is {value:g}; it must be {start}{'' if high is None else f' and at most {high:g}'}.",
            name,
        )


def _stops(request: GenerationRequest, profile: str) -> tuple[str, ...]:
    if request.stop is None:
        return ()
    stops = (request.stop,) if isinstance(request.stop, str) else tuple(request.stop)
    if "" in stops:
        raise _stop_error("stop has an empty string; every stop string needs at least one character.")
    if profile == "openai" and len(stops) > _MAX_STOPS_OPENAI:
        raise _stop_error(f"stop has {len(stops)} strings; at most {_MAX_STOPS_OPENAI} are allowed.")
    return stops


def _stop_error(message: str) -> ApiError:
    return bad_request(message, "stop")
