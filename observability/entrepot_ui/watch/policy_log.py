"""What the failover policies on this host decided: the lines of their event logs, as they are written."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from entrepot_policy.state.events import Event, LogTail

MAX_DECISIONS = 500
MAX_LOGS = 64  # scopes whose logs are followed, by name
HISTORY_BYTES = 256 << 10  # of each log that are read at first
ALERTS = frozenset(
    {
        "checkpoint_failed",
        "checkpoint_damaged",
        "object_lost",
        "instance_lost",
        "daemon_lost",
        "task_failed",
        "gave_up",
    }
)


class PolicyLog:
    """The latest lines of all logs in a directory. One thread polls it, any thread reads it.

    Args:
        folder: of the logs, one a scope; it need not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tails: dict[Path, LogTail] = {}  # of the thread that polls, as the next
        self._polled = False
        self._lock = threading.Lock()
        self._decisions: deque[dict[str, Any]] = deque(maxlen=MAX_DECISIONS)  # guarded by _lock, as the next
        self._problem = ""

    def poll(self) -> list[Event]:
        """Read what is new. The first poll reads what the logs hold already, and returns nothing."""
        new: list[tuple[Event, str]] = []
        try:
            for path in sorted(self.folder.glob("*.jsonl"))[:MAX_LOGS]:
                if path not in self._tails:
                    self._tails[path] = LogTail(path, None if self._polled else HISTORY_BYTES)
                scope = unquote(path.stem)
                new += [(event, scope) for event in self._tails[path].read()]
            problem = ""
        except OSError as error:
            problem = f"the event logs in {self.folder} cannot be read: {error}"
        new.sort(key=lambda item: item[0].time)
        with self._lock:
            self._problem = problem
            self._decisions.extend({**asdict(event), "scope": scope} for event, scope in new)
        begun, self._polled = self._polled, True
        return [event for event, _ in new] if begun else []

    def to_json(self) -> dict[str, Any]:
        """What the page gets: the latest decisions, newest first."""
        with self._lock:
            decisions, problem = list(self._decisions), self._problem
        return {"folder": str(self.folder), "problem": problem, "decisions": decisions[::-1]}
