"""Machine-readable log lines: one JSON object each, on standard error."""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone

ROOT = "entrepot_operator"
log = logging.getLogger(ROOT)


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        said = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "logger": record.name,
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json.dumps(said, default=str)


def to_standard_error() -> None:
    """Send the operator's log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    log.handlers[:] = [handler]
    log.setLevel(logging.INFO)
    log.propagate = False


def facts(**said: object) -> dict[str, dict[str, object]]:
    """Extra fields of a log line: ``log.info("...", extra=facts(store="main"))``."""
    return {"facts": said}
