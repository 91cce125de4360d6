"""GET /dashboard: the live page. It needs no key; what it shows comes from /admin routes, which may."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from app.dashboard.assemble import dashboard_page
from app.errors import ApiError

router = APIRouter(tags=["Admin"])


@router.get("/dashboard", response_class=HTMLResponse, summary="The live page, for a browser")
@router.get("/dashboard/", response_class=HTMLResponse, include_in_schema=False)
async def dashboard() -> HTMLResponse:
    """One self-contained page: no other file, no other host."""
    page = dashboard_page()
    headers = {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": page.policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }
    return HTMLResponse(page.body, headers=headers)


@router.get("/", include_in_schema=False)
async def root(request: Request) -> RedirectResponse:
    """A person who opens the server's address sees the dashboard; a program gets vLLM's 404."""
    if "text/html" not in request.headers.get("accept", ""):
        raise ApiError(404, "There is no route GET /.")
    return RedirectResponse("dashboard", status_code=307)
