"""Makes the dashboard's page: its HTML, styles and modules, joined into one response that loads nothing else.

The modules are real ES modules, so that editors and linters understand them; joined, they share one scope.
Owns the order and the page's Content-Security-Policy. Must not know the server.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

STYLES = ("theme.css", "layout.css")
# Each after those that it imports.
MODULES = (
    "dom.js",
    "link.js",
    "theme.js",
    "charts.js",
    "blocks.js",
    "batch.js",
    "handoffs.js",
    "requests.js",
    "tryit.js",
    "switches.js",
    "frame.js",
    "main.js",
)

_IMPORT = re.compile(r"^import [^;]+;\n", re.M)
_EXPORT = re.compile(r"^export (?=\w)", re.M)


@dataclass(frozen=True, slots=True)
class Page:
    """The response's body, and the policy that lets a browser run this body and load nothing but data."""

    body: bytes
    policy: str


@cache
def dashboard_page() -> Page:
    """The page; read from the package once per process."""
    css = "\n".join(_read(name) for name in STYLES)
    js = "\n".join(_joined(_read(name)) for name in MODULES)
    assert "</script" not in js and "</style" not in css, "a page's part would end its own element"
    html = _read("page.html").replace("{{css}}", css).replace("{{js}}", js)
    policy = (
        f"default-src 'none'; style-src '{_digest(css)}'; script-src '{_digest(js)}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    )
    return Page(html.encode(), policy)


def _joined(module: str) -> str:
    return _EXPORT.sub("", _IMPORT.sub("", module))


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _read(name: str) -> str:
    return files("app.dashboard.page").joinpath(name).read_text(encoding="utf-8")
