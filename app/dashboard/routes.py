"""GET /dashboard: the live page. It needs no key; what it shows comes from /admin routes, which may."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from app.dashboard.assemble import dashboard_page

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
