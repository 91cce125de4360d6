"""/health, /ping, /version, /load, /server_info: what load balancers and vLLM's tools ask.

/health is 200 with an empty body only while requests are served.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from app import __version__
from app.openai.serving import check_ready
from app.state import AppState, State

router = APIRouter(tags=["Operations"])


def _health(state: AppState) -> Response:
    check_ready(state)
    return Response(status_code=200)


@router.get("/health", response_class=Response, summary="200 while requests are served, else 503")
async def health(state: State) -> Response:
    return _health(state)


@router.get("/ping", response_class=Response, summary="As /health")
async def ping(state: State) -> Response:
    return _health(state)


@router.post("/ping", response_class=Response, summary="As /health")
async def ping_post(state: State) -> Response:
    return _health(state)


@router.get("/version", summary="The mocker's version")
async def version() -> dict[str, str]:
    return {"version": __version__}


@router.get("/load", summary="Generation requests in flight")
async def load(state: State) -> dict[str, int]:
    return {"server_load": state.load}


@router.get("/server_info", summary="The settings of this server, without its secrets")
async def server_info(state: State) -> dict[str, Any]:
    return {"mocker_config": state.settings.public_values(), "version": __version__}
