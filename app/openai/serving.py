"""The way of a generation request that chat and text completions share: limits, tokens, plan, submit.

    HotEndpoint (ASGI) -> a route's `start` -> tokenise -> plan_limit -> launch -> the dispatcher takes over

Must not know the fields of one route's request.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from msgspec import Struct

from app.admission_gate import AdmissionGate
from app.dispatch import Sink
from app.errors import ApiError, bad_request, context_too_long, from_exception
from app.faults import NO_CHANGE, faults_of
from app.middleware import edge_of
from app.openai.answer import RunGroup, send_error
from app.openai.choice import ChoiceRun, Outcome
from app.openai.paced import PacedSink, pacer_of
from app.openai.sampling import Sampling
from app.openai.submit import SubmitContext
from app.rate_limit import api_key_of, rate_limiter_of
from app.state import AppState
from app.stream_response import Header, HotResponse, Receive, Scope, Send
from app.text.plan import OutputPlan, PlanRequest
from mocker_core.errors import DuplicateIdError
from mocker_core.request import DirectRequest, RequestId

T = TypeVar("T")

logger = logging.getLogger("mocker.http")

# Texts longer than this are tokenised in a thread, so that the loop goes on ticking meanwhile.
_LONG_TEXT_CHARS = 100_000
_LISTED_PLAN_TOKENS = 256
# A request with this header wants to know why it took as long as it did.
EXPLAIN_HEADER = b"x-mocker-explain"


class ClientGoneError(Exception):
    """The client left before its request was read."""


def _nothing() -> None: ...


def _no_headers(headers: Iterable[Header]) -> None: ...


class Incoming(Struct, frozen=True):
    """One request as a hot route gets it. `headers`: lower-case names. `cut_off` breaks its connection.

    `add_headers` adds to the answer's.
    """

    body: bytes
    request_id: str
    headers: Mapping[bytes, bytes]
    cut_off: Callable[[], None] = _nothing
    add_headers: Callable[[Iterable[Header]], None] = _no_headers


Start = Callable[[AppState, Incoming, HotResponse], Awaitable[None]]
# Writes an error in an API's own shape: (response, error, wire profile).
ErrorWriter = Callable[[HotResponse, ApiError, str], None]


class HotEndpoint:
    """ASGI app of one hot POST route: reads the body, starts the answer, and waits for its end."""

    def __init__(
        self, state: AppState, start: Start, gate: AdmissionGate, write_error: ErrorWriter = send_error
    ) -> None:
        self._state = state
        self._start = start
        self._gate = gate
        self._write_error = write_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = self._state
        edge = edge_of(scope)
        response = HotResponse(scope, send, state.dispatcher.writes)
        try:
            check_ready(state)
            body = await read_body(edge.incoming, receive, state.max_body_bytes)
            await self._gate.enter()
            faults_of(state).check(edge.incoming)
            incoming = Incoming(body, edge.request_id, edge.incoming, response.cut_off, response.add_headers)
            await self._start(state, incoming, response)
        except ClientGoneError:
            return
        except Exception as exc:
            error = from_exception(exc)
            if error.status == 500 and error is not exc:
                logger.error("A request failed.", exc_info=exc)
            if error.delay_ms:
                await asyncio.sleep(error.delay_ms / 1000)
            self._write_error(response, error, state.profile)
            response.write()
        await response.wait_closed(receive)


def check_ready(state: AppState) -> None:
    """Raises ApiError 503 while the engine starts, after it died, and while the server shuts down."""
    engine = state.engine
    if engine.state == "ready" and not state.shutting_down:
        return
    if engine.state == "dead" and not state.shutting_down:
        raise ApiError(
            503, f"The engine is dead: {engine.dead_reason}", code="engine_dead", err_type="server_error"
        )
    what = "shutting down" if state.shutting_down else "starting"
    raise ApiError(
        503,
        f"The server is {what}; try again later.",
        code="not_ready",
        err_type="server_error",
        headers={"Retry-After": "1"},
    )


async def read_body(headers: Mapping[bytes, bytes], receive: Receive, limit_bytes: int) -> bytes:
    """The whole body. Raises ApiError 413 as soon as it is known to be too large."""
    declared = headers.get(b"content-length", b"")
    if declared.isdigit() and int(declared) > limit_bytes:
        raise _too_large(limit_bytes, int(declared))
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGoneError
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        if len(body) > limit_bytes:
            raise _too_large(limit_bytes, len(body))
        return body
    parts = [body]
    total = len(body)
    while message.get("more_body", False):
        if total > limit_bytes:
            raise _too_large(limit_bytes, total)
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGoneError
        part: bytes = message.get("body", b"")
        total += len(part)
        parts.append(part)
    return b"".join(parts)


async def tokenised(encode: Callable[[], T], text_chars: int) -> T:
    """`encode()`, in a thread if there is much text."""
    if text_chars <= _LONG_TEXT_CHARS:
        return encode()
    return await asyncio.to_thread(encode)


def plan_limit(
    state: AppState, prompt_tokens: int, max_tokens: int | None, param: str, default: int | None = None
) -> int:
    """How many tokens the answer may have. Raises ApiError 400 if prompt and answer exceed the context,
    or if no pass could ever compute the prompt: it would wait for ever, and all others behind it."""
    args = state.engine.args
    if not args.enable_chunked_prefill and args.worker_type != "decode":
        budget = args.max_num_batched_tokens
        if budget is not None and prompt_tokens > budget:
            raise bad_request(
                f"The {param} has {prompt_tokens} tokens, but without chunked prefill at most {budget} fit "
                "in a pass; start the server with --enable-chunked-prefill or more --max-num-batched-tokens.",
                param,
            )
    limit = state.max_model_len
    if max_tokens is not None:
        if prompt_tokens + max_tokens > limit or prompt_tokens >= limit:
            raise context_too_long(limit, prompt_tokens, max_tokens, param)
        return max_tokens
    if prompt_tokens >= limit:
        raise context_too_long(limit, prompt_tokens, None, param)
    room = limit - prompt_tokens
    return room if default is None else min(default, room)


def check_room(state: AppState, new_requests: int) -> None:
    """Raises ApiError 429 if the requests would wait behind more than --max-waiting others."""
    most = state.settings.max_waiting
    if most is None:
        return
    args = state.engine.args
    waiting = state.dispatcher.waiting_for_admission
    metrics = [state.engine.metrics(rank) for rank in range(args.dp_size)]
    free = 0
    if not any(item.waiting_requests for item in metrics) and args.max_num_seqs is not None:
        # Nobody waited at the last look, so the next pass admits as many as there are slots.
        free = args.max_num_seqs * args.dp_size - sum(item.running_requests for item in metrics)
    if waiting + new_requests > most + max(0, free):
        raise ApiError(
            429,
            f"{waiting} requests are waiting and at most {most} may (--max-waiting); try again later.",
            code="rate_limit_exceeded",
            headers={"Retry-After": "1"},
        )


def plan_request(
    sampling: Sampling,
    request_id: str,
    prompt: Sequence[int],
    max_tokens: int,
    choice_index: int,
    echo_text: str | None,
) -> PlanRequest:
    """What the text layer needs to plan one choice."""
    return PlanRequest(
        request_id=request_id,
        prompt_token_ids=prompt,
        max_tokens=max_tokens,
        min_tokens=sampling.min_tokens,
        ignore_eos=sampling.ignore_eos,
        seed=sampling.seed,
        choice_index=choice_index,
        stop=sampling.stop,
        stop_token_ids=sampling.stop_token_ids,
        include_stop_str_in_output=sampling.include_stop_str_in_output,
        echo_text=echo_text,
    )


def engine_request_id(state: AppState, answer_id: str, index: int, total: int) -> RequestId:
    """The answer's id for a single choice, `<index>_<id>` for one of several; never one that is alive."""
    name = answer_id if total == 1 else f"{index}_{answer_id}"
    return _another(name) if name in state.dispatcher else RequestId(name)


class Launch(Struct, frozen=True):
    """A run with the prompt that the engine gets. `max_output_tokens` counts only without a plan."""

    run: ChoiceRun
    prompt: Sequence[int]
    max_output_tokens: int = 0


def launch(
    state: AppState, answer: RunGroup, launches: Sequence[Launch], priority: int, context: SubmitContext
) -> None:
    """Register and submit all runs of an answer, or none: a refusal cancels those already submitted."""
    check_room(state, len(launches))
    limiter = rate_limiter_of(state)
    if limiter is not None:
        context.add_headers(limiter.admit(api_key_of(context.headers), _total_tokens(launches)))
    answer.add_runs([item.run for item in launches])
    if state.settings.explain or context.headers.get(EXPLAIN_HEADER, b"") in (b"1", b"true"):
        answer.explainer = state.explainer
    if state.settings.otlp_endpoint is not None:
        answer.traceparent = context.headers.get(b"traceparent", b"").decode("latin-1")
    salt = _salt(state, answer.model, context.cache_salt)
    try:
        for item in launches:
            _submit(state, item, priority, salt, context)
    except BaseException:
        answer.cancel_all()
        raise


def _total_tokens(launches: Sequence[Launch]) -> int:
    """What usage will say if all end as planned; each prompt counts once."""
    prompts = {item.run.prompt_index: item.run.num_prompt_tokens for item in launches}
    answers = (0 if item.run.plan is None else len(item.run.plan) for item in launches)
    return sum(prompts.values()) + sum(answers)


def _salt(state: AppState, model: str, cache_salt: str | None) -> bytes:
    """What keeps KV blocks apart: an adapter's KV is not the base model's, and vLLM's cache_salt."""
    adapter = model if state.models.is_adapter(model) else ""
    if not adapter and not cache_salt:
        return b""
    return f"{adapter}\0{cache_salt or ''}".encode("utf-8", "surrogatepass")


def _submit(state: AppState, item: Launch, priority: int, salt: bytes, context: SubmitContext) -> None:
    run = item.run
    run.arrival_ms = state.engine.now_ms()
    try:
        _register_and_submit(state, item, priority, salt, context)
    except DuplicateIdError:
        # The engine has yet to let go of a request with this id, whose client left: take another one.
        run.request_id = _another(run.request_id)
        _register_and_submit(state, item, priority, salt, context)
    run.outcome = Outcome.RUNNING
    for observer in state.observers:
        observer.on_request_start(run)


def _register_and_submit(
    state: AppState, item: Launch, priority: int, salt: bytes, context: SubmitContext
) -> None:
    run = item.run
    state.dispatcher.register(run.request_id, _sink(state, run, context))
    try:
        state.submitter.submit(_direct_request(item, priority, salt), run, context)
    except BaseException:
        state.dispatcher.forget(run.request_id)
        raise


def _sink(state: AppState, run: ChoiceRun, context: SubmitContext) -> Sink:
    """The run, or what delays or ends its tokens. Raises ApiError 400 for a fault header that is wrong."""
    plan = run.plan
    pace = faults_of(state).pace(context.headers, 0 if plan is None else len(plan))
    if plan is not None and plan.delays_ms != (0.0, 0.0):
        ttft_ms, itl_ms = plan.delays_ms
        pace = replace(pace, ttft_ms=pace.ttft_ms + ttft_ms, itl_ms=pace.itl_ms + itl_ms)
    return run if pace == NO_CHANGE else PacedSink(run, pace, pacer_of(state), context.cut_off)


def _direct_request(item: Launch, priority: int, salt: bytes) -> DirectRequest:
    run = item.run
    plan: OutputPlan | None = run.plan
    return DirectRequest(
        request_id=run.request_id,
        tokens=item.prompt,
        max_output_tokens=item.max_output_tokens if plan is None else len(plan),
        # The engine and the dispatcher read each id several times: a list is quicker, a long one late.
        output_token_ids=plan[:] if plan is not None and len(plan) <= _LISTED_PLAN_TOKENS else plan,
        # vLLM's API: the lowest number goes first; the engine's queue: the highest.
        priority=-priority,
        arrival_timestamp_ms=run.arrival_ms,
        salt=salt,
    )


def _another(request_id: str) -> RequestId:
    return RequestId(f"{request_id}-{secrets.token_hex(4)}")


def submit_context(
    incoming: Incoming,
    kv_transfer_params: Mapping[str, object] | None,
    dp_size: int,
    cache_salt: str | None = None,
) -> SubmitContext:
    """The way into the engine. Raises ApiError 400 for a rank (X-Data-Parallel-Rank) that does not exist
    and for an empty cache_salt.
    """
    if cache_salt == "":
        raise bad_request("cache_salt is an empty text; give one or leave it out.", "cache_salt")
    rank: int | None = None
    text = incoming.headers.get(b"x-data-parallel-rank")
    if text is not None:
        if not text.isdigit() or int(text) >= dp_size:
            raise ApiError(
                400,
                f"X-Data-Parallel-Rank is {text.decode('latin-1')}; it must be between 0 and {dp_size - 1}.",
            )
        rank = int(text)
    return SubmitContext(
        incoming.request_id,
        kv_transfer_params,
        rank,
        incoming.headers,
        incoming.cut_off,
        incoming.add_headers,
        cache_salt,
    )


def _too_large(limit_bytes: int, size_bytes: int) -> ApiError:
    return ApiError(
        413,
        f"The request body has {size_bytes} bytes or more; at most {limit_bytes} may come (--max-body-mb).",
        code="request_too_large",
        headers={"Connection": "close"},
    )
