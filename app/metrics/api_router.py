"""GET /metrics, for Prometheus and for whatever reads vLLM's metrics."""

from __future__ import annotations

from fastapi import APIRouter, Response

from app.metrics.exposition import CONTENT_TYPE, render
from app.metrics.install import collector_of
from app.state import State

router = APIRouter(tags=["Operations"])


@router.get(
    "/metrics",
    summary="vLLM's metrics and the mocker's own, in Prometheus's text format",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(state: State) -> Response:
    """Answered in every state of the engine; needs no key, as in vLLM."""
    collector = collector_of(state)
    return Response(render(collector.families, await collector.collect()), media_type=CONTENT_TYPE)
