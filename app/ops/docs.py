"""GET /docs: the routes from /openapi.json as one page of our own; nothing comes from another host."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

router = APIRouter()

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)


@router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
@router.get("/docs/", response_class=HTMLResponse, include_in_schema=False)
async def docs() -> HTMLResponse:
    return HTMLResponse(_page(), headers={"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"})


@cache
def _page() -> str:
    return files("app.ops").joinpath("docs_page.html").read_text("utf-8")
