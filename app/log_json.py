"""Log lines as JSON objects, one a line."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import orjson


class JsonFormatter(logging.Formatter):
    """time (ISO 8601, UTC), level, logger, message; `exception` where there is one; the record's `fields`."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()
