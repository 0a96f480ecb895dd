"""Machine-readable log lines: one JSON object each, on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone

LOGGER_NAME = "entrepot_operator"
log = logging.getLogger(LOGGER_NAME)


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "logger": record.name,
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def log_to_stderr() -> None:
    """Send the operator's log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter())
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False


def log_fields(**fields: object) -> dict[str, dict[str, object]]:
    """Extra fields of a log line: ``log.info("...", extra=log_fields(store="main"))``."""
    return {"facts": fields}
