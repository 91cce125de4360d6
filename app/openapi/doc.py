"""`python -m app.openapi.doc [--write | --check]`: the committed OpenAPI document, and whether it drifted."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from app.factory import create_app
from app.settings import ServeSettings

PATH = Path(__file__).resolve().parents[2] / "openapi" / "openapi.json"


def document_text() -> str:
    """The document as committed: two spaces, a final line end."""
    return json.dumps(create_app(ServeSettings()).openapi(), indent=2, ensure_ascii=False) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Write the document, or (--check) compare it; exit status 1 if it drifted."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words not in ([], ["--write"], ["--check"]):
        print("usage: python -m app.openapi.doc [--write | --check]", file=sys.stderr)
        return 2
    text = document_text()
    if words == ["--check"]:
        if PATH.is_file() and PATH.read_text(encoding="utf-8") == text:
            return 0
        print("openapi/openapi.json is not what the routes say; run `make openapi`.", file=sys.stderr)
        return 1
    PATH.parent.mkdir(parents=True, exist_ok=True)
    PATH.write_text(text, encoding="utf-8")
    print("Wrote openapi/openapi.json.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
