"""`python -m app.openapi_export [PATH]`: write the OpenAPI document (default openapi/openapi.json)."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from app.factory import create_app
from app.settings import ServeSettings

DEFAULT_PATH = Path("openapi/openapi.json")


def document_text() -> str:
    """The document as committed: sorted where order has no meaning, two spaces, a final line end."""
    return json.dumps(create_app(ServeSettings()).openapi(), indent=2, ensure_ascii=False) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    path = Path(words[0]) if words else DEFAULT_PATH
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document_text(), encoding="utf-8")
    print(f"Wrote {path}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
