"""The hosts of a cluster, from its directory, for as long as somebody looks."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from entrepot.errors import EntrepotError

if TYPE_CHECKING:
    from entrepot_cluster.directory.directory import Directory

MAX_AGE = 5.0


class ClusterHosts:
    """Asks the directory, at most every ``MAX_AGE`` seconds. For any number of threads.

    Args:
        url: of the directory; None: there is no cluster.
    """

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._lock = threading.Lock()
        # All guarded by _lock.
        self._resources = ExitStack()
        self._directory: Directory | None = None
        self._asked_at = -float("inf")
        self._answer: dict[str, Any] = {"configured": url is not None, "hosts": [], "error": ""}

    def hosts(self) -> dict[str, Any]:
        """``configured``, ``hosts``, and ``error``: why they are not known, or may be old."""
        with self._lock:
            if self._url is None or time.monotonic() - self._asked_at < MAX_AGE:
                return self._answer
            try:
                hosts, error = self._ask(self._url), ""
            except (EntrepotError, ImportError) as problem:
                hosts, error = self._answer["hosts"], str(problem)
            self._asked_at = time.monotonic()
            self._answer = {"configured": True, "hosts": hosts, "error": error}
            return self._answer

    def close(self) -> None:
        """Leave the directory."""
        with self._lock:
            self._resources.close()
            self._directory = None

    def _ask(self, url: str) -> list[dict[str, Any]]:
        if self._directory is None:
            from entrepot_cluster.directory.opening import open_directory

            self._directory = self._resources.enter_context(open_directory(url))
        return [
            {
                "host": instance.host,
                "id": instance.id,
                "addresses": list(instance.addresses),
                "live": instance.live,
                "lost_since": instance.lost_since,
            }
            for instance in self._directory.instances()
        ]
