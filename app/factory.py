"""Builds the application: state, lifespan, routes, error handlers. Importing it starts nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from app import __version__
from app.admission_gate import AdmissionGate
from app.anthropic.errors import body_for_path
from app.dispatch import Dispatcher
from app.errors import ApiError, from_exception, http_status_error, schema_error
from app.middleware import EdgeMiddleware
from app.openai.models import ModelRegistry
from app.openai.serving import HotEndpoint
from app.openai.submit import DirectSubmitter
from app.routes import HotRoute
from app.settings import ServeSettings
from app.state import AppState, Engine
from app.text.chat_template import ChatTemplate
from app.text.generator import OutputPlanner
from app.text.lengths import LengthModel
from app.text.logprobs import LogprobModel
from app.text.token_json import TokenJson
from app.text.tokenizer import BuiltinTokenizer, Tokenizer
from mocker_core.engine_args import MockEngineArgs
from mocker_core.errors import ArgumentError, MockerError

logger = logging.getLogger("mocker")

EngineFactory = Callable[[MockEngineArgs, Dispatcher], Engine]


class MockerApp(FastAPI):
    """FastAPI with the edge layer outside of everything, and the hot routes in its OpenAPI document."""

    def __init__(self, state: AppState, **kwargs: Any) -> None:
        from app.openai.upstream import upstream_endpoints

        super().__init__(**kwargs)
        self.state.mocker = state
        self.hot_routes: Sequence[HotRoute] = hot_routes()
        gate = AdmissionGate()
        self._hot_endpoints: dict[str, Any] = {
            route.path: HotEndpoint(state, route.start, gate, route.write_error) for route in self.hot_routes
        }
        self._hot_endpoints |= upstream_endpoints(state, [route.path for route in self.hot_routes])
        # Also in the router, for whoever lists the routes and for the answer to a wrong method.
        for route in self.hot_routes:
            endpoint = self._hot_endpoints[route.path]
            self.router.routes.append(Route(route.path, endpoint, methods=["POST"], name=route.name))

        self._edge = EdgeMiddleware(super().__call__, state.settings, self._hot_endpoints)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self._edge(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            from app.openapi.examples import add_examples, restore_nulls
            from app.openapi.hot_routes import add_hot_routes

            own = [route for router in routers() for route in router.routes]
            document = restore_nulls(super().openapi(), own)
            document = add_hot_routes(document, self.hot_routes)
            self.openapi_schema = add_examples(document)
        return self.openapi_schema


def hot_routes() -> list[HotRoute]:
    """Every hot route of the server."""
    from app.anthropic.api_router import hot_routes as messages_routes
    from app.openai.chat_completion.api_router import route as chat_route
    from app.openai.completion.api_router import route as completion_route
    from app.openai.pooling.api_router import hot_routes as pooling_routes
    from app.openai.responses.api_router import hot_routes as responses_routes
    from app.ops.tokenize import hot_routes as tokenize_routes

    return [
        chat_route,
        completion_route,
        *responses_routes,
        *messages_routes,
        *pooling_routes,
        *tokenize_routes,
    ]


def routers() -> list[APIRouter]:
    """Every FastAPI router of the server."""
    from app.admin.config import router as config_router
    from app.admin.events import router as events_router
    from app.admin.handoff import router as handoff_router
    from app.admin.whole_handoff import router as whole_handoff_router
    from app.dashboard.feed_route import router as feed_router
    from app.dashboard.routes import router as dashboard_router
    from app.metrics.api_router import router as prometheus_router
    from app.openai.models_router import router as models_router
    from app.openai.responses.api_router import router as responses_router
    from app.openai.stored.api_router import router as stored_router
    from app.ops.cache import router as cache_router
    from app.ops.docs import router as docs_router
    from app.ops.health import router as health_router
    from app.ops.lora import router as lora_router
    from app.ops.metrics_json import router as metrics_router
    from app.pd.api_router import router as pd_router
    from app.timeline.api_router import router as timeline_router

    return [
        models_router,
        responses_router,
        stored_router,
        health_router,
        docs_router,
        lora_router,
        metrics_router,
        config_router,
        events_router,
        cache_router,
        pd_router,
        handoff_router,
        whole_handoff_router,
        prometheus_router,
        timeline_router,
        dashboard_router,
        feed_router,
    ]


def create_app(settings: ServeSettings, *, engine: EngineFactory | None = None) -> MockerApp:
    """A server's application. The engine starts with the lifespan; until it is ready /health says 503."""
    state = build_state(settings, engine or _live_engine)
    app = MockerApp(
        state,
        title="LLM mocker",
        version=__version__,
        lifespan=_lifespan,
        root_path=settings.root_path,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        summary="An OpenAI and vLLM compatible server whose answers are timed by a simulated scheduler.",
    )
    for router in routers():
        app.include_router(router)
    app.add_exception_handler(ApiError, _answer_error)
    app.add_exception_handler(MockerError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(RequestValidationError, _answer_validation)
    app.add_exception_handler(Exception, _answer_error)
    return app


def build_state(settings: ServeSettings, engine_factory: EngineFactory) -> AppState:
    """Everything of a server but its routes. Raises ArgumentError for settings that cannot be met."""
    tokenizer = _tokenizer(settings)
    dispatcher = Dispatcher()
    engine = engine_factory(settings.engine_args(), dispatcher)
    dispatcher.now_ms = engine.now_ms
    max_model_len = engine.args.max_model_len or settings.pool_tokens
    state = AppState(
        settings=settings,
        engine=engine,
        dispatcher=dispatcher,
        tokenizer=tokenizer,
        template=ChatTemplate(tokenizer),
        planner=_planner(settings, tokenizer),
        fragments=TokenJson(tokenizer),
        logprobs=LogprobModel(tokenizer),
        models=ModelRegistry(settings.model_names, settings.model, max_model_len),
        submitter=DirectSubmitter(engine),
    )
    _install_parts(state)
    return state


def _install_parts(state: AppState) -> None:
    """What watches the engine or adds to the answers of others."""
    from app.admin.events import install_event_streams
    from app.dashboard.feed import install_curves
    from app.faults import install_faults
    from app.kv_events.install import install_kv_events
    from app.metrics.install import install_metrics
    from app.openai.canned import install_canned
    from app.ops.lora import install_lora
    from app.pd.service import install_handoffs
    from app.rate_limit import install_rate_limits
    from app.request_log import RequestLog
    from app.timeline.install import install_timeline

    if state.settings.enable_log_requests:
        state.observers.append(RequestLog(state.tokenizer if state.settings.log_prompts else None))
    install_faults(state)
    install_rate_limits(state)
    install_canned(state)
    install_lora(state)
    install_event_streams(state)
    install_kv_events(state)
    install_handoffs(state)
    install_timeline(state)
    install_metrics(state)
    install_curves(state)


def _tokenizer(settings: ServeSettings) -> Tokenizer:
    if settings.tokenizer is None:
        return BuiltinTokenizer()
    from app.text.real_tokenizers import TokenizerError, load_tokenizer

    try:
        return load_tokenizer(settings.tokenizer)
    except TokenizerError as exc:
        raise ArgumentError(f"--tokenizer {settings.tokenizer}: {exc}") from None


def _planner(settings: ServeSettings, tokenizer: Tokenizer) -> OutputPlanner:
    mode = settings.content if settings.content in ("echo", "random") else "lorem"
    lengths = LengthModel(
        mean_tokens=settings.output_length_mean,
        sd_tokens=settings.output_length_stddev,
        min_tokens=settings.output_length_min,
        max_tokens=settings.output_length_max or max(settings.output_length_min, 8192),
    )
    return OutputPlanner(
        tokenizer,
        mode=mode,  # type: ignore[arg-type] # narrowed to the planner's modes above
        server_seed=settings.seed,
        lengths=lengths,
    )


def _live_engine(args: MockEngineArgs, dispatcher: Dispatcher) -> Engine:
    from mocker_core.live.engine import MockEngine

    return MockEngine(args, dispatcher)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    from app.kv_events.install import start_kv_events, stop_kv_events
    from app.openai.upstream import close_upstream
    from app.pd.service import pd_service

    state: AppState = app.state.mocker
    start_kv_events(state)
    async with asyncio.TaskGroup() as tasks:
        starting = tasks.create_task(_start_engine(state))
        pings = tasks.create_task(state.dispatcher.ping_silent(state.settings.ping_seconds))
        try:
            # An engine without a start-up time is ready before the first request can come.
            await asyncio.wait([starting], timeout=None if not state.settings.startup_time else 0.0)
            yield
        finally:
            state.shutting_down = True
            pings.cancel()
            starting.cancel()
            await state.engine.stop()
            state.dispatcher.flush()
            state.end_streams()
            await pd_service(state).close()
            await stop_kv_events(state)
            await close_upstream(state)
            await state.dispatcher.writes.close()


async def _start_engine(state: AppState) -> None:
    try:
        await state.engine.start()
    except Exception:
        logger.exception("The engine did not start.")


async def _answer_error(request: Request, exc: Exception) -> Response:
    return _error_response(request, exc)


def _error_response(request: Request, exc: Exception) -> Response:
    state: AppState = request.app.state.mocker
    error = from_exception(exc)
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    body = body_for_path(path, error, state.profile)
    return Response(body, error.status, headers=error.headers, media_type="application/json")


async def _answer_http_error(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, HTTPException)
    if exc.status_code == 404 and exc.detail == "Not Found":
        detail = f"There is no route {request.method} {request.url.path}."
    elif exc.status_code == 405:
        detail = f"The method {request.method} is not allowed for {request.url.path}."
    else:
        detail = str(exc.detail)
    error = http_status_error(exc.status_code, detail)
    error.headers.update(exc.headers or {})
    return _error_response(request, error)


async def _answer_validation(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, RequestValidationError)
    first = exc.errors()[0]
    where = [str(part) for part in first["loc"]]
    param = ".".join(where[1:] if where[:1] in (["body"], ["query"], ["path"]) else where) or None
    return _error_response(request, schema_error(f"{param or 'The request'}: {first['msg']}.", param))
