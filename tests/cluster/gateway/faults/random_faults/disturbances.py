"""When which host was disturbed, so that an error can be told from one that should not have been."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

SETTLE_SECONDS = 20.0  # after a fault: longer than any time limit of the cluster
LOCAL_SETTLE_SECONDS = 5.0  # of a store: a daemon that was killed is back by then
DIRECTORY = "directory"


@dataclass(slots=True)
class Span:
    """A fault: of what, of which part of it, and from when to when; infinite while it lasts."""

    what: str
    is_store: bool
    begin: float
    end: float = float("inf")


class Disturbances:
    """All faults of a run. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[Span] = []  # guarded by _lock

    def begin(self, what: str, *, is_store: bool) -> Span:
        """A fault of a host begins, or of the directory; ``is_store``: of its store, not of gateway or links."""
        span = Span(what, is_store, time.monotonic())
        with self._lock:
            self._spans.append(span)
        return span

    def end(self, span: Span) -> None:
        """A fault ends."""
        with self._lock:
            span.end = time.monotonic()

    def is_quiet(self, hosts: Iterable[str], since: float) -> bool:
        """Whether nothing can have disturbed what these hosts did with each other since a time."""
        names = {*hosts, DIRECTORY}
        with self._lock:
            return not any(span.what in names and span.end > since - SETTLE_SECONDS for span in self._spans)

    def is_store_quiet(self, host: str, since: float) -> bool:
        """Whether nothing can have disturbed a host's own store since a time."""
        with self._lock:
            return not any(
                span.what == host and span.is_store and span.end > since - LOCAL_SETTLE_SECONDS for span in self._spans
            )
