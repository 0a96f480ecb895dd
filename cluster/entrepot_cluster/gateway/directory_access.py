"""Access to the cluster's directory, which may be away when the gateway starts."""

from __future__ import annotations

import math
import threading
import time
from urllib.parse import urlsplit

from entrepot.errors import DirectoryUnavailable

from entrepot_cluster.directory.directory import Directory
from entrepot_cluster.directory.model import Instance
from entrepot_cluster.directory.opening import open_directory

FIRST_ATTEMPT_SECONDS = 10.0
OUTAGE_SECONDS = 30.0  # after an outage, before what counts as lost is lost
LOST_BEFORE_SECONDS = 30.0  # an instance that was lost longer before that was lost for another reason


def cluster_name(url: str) -> str:
    """Return the cluster's name in the URL of a directory; the URL is checked when it is opened."""
    return urlsplit(url).path.rpartition("/")[2]


class DirectoryAccess:
    """Opens the directory as soon as it can be reached. Thread-safe.

        not reached ──open()──▶ opened ──hangs()──▶ hanging ──responds()──▶ opened
           └──close()──▶ closed ◀──close()──┴──────────┘

    While it hangs, callers get the error at once instead of waiting for the directory's timeout, one after the other;
    only whoever renews the lease goes on asking.

    Args:
        url: of the directory.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._directory: Directory | None = None  # guarded by _lock
        self._error: DirectoryUnavailable | None = None  # guarded by _lock: of the last attempt
        self._hanging: DirectoryUnavailable | None = None  # what was its last answer; guarded by _lock
        self._closed = False  # guarded by _lock
        self._outage_at = -math.inf  # the last outage; guarded by _lock
        self._instances: list[Instance] = []  # known last; guarded by _lock
        self._attempted = threading.Event()  # to open it

    def open(self) -> Directory:
        """Open the directory, unless it is open.

        Raises:
            DirectoryUnavailable: it cannot be reached.
            EntrepotError: the URL is wrong, or the directory is another cluster's, or newer (``open_directory``).
        """
        with self._lock:
            if self._directory is not None:
                return self._directory
            if self._closed:
                raise DirectoryUnavailable("this gateway is being stopped")
        try:
            opened = open_directory(self._url)
        except DirectoryUnavailable as error:
            with self._lock:
                self._error = error
            self._attempted.set()
            raise
        with self._lock:
            if self._directory is None and not self._closed:
                self._directory = opened
                self._attempted.set()
                return opened
        opened.close()
        return self.get()

    def get(self) -> Directory:
        """Return the directory; waits only for the first attempt to open it.

        Raises:
            DirectoryUnavailable: it was not reached yet, or hangs.
        """
        self._attempted.wait(FIRST_ATTEMPT_SECONDS)
        with self._lock:
            if self._hanging is not None:
                raise DirectoryUnavailable(f"the cluster's directory does not respond at the moment: {self._hanging}")
            if self._directory is not None:
                return self._directory
            raise DirectoryUnavailable(f"the cluster's directory was not reached yet: {self._error or 'wait a moment'}")

    def hangs(self, error: DirectoryUnavailable) -> None:
        """Note that the directory made somebody wait, and then did not answer."""
        with self._lock:
            self._hanging = error

    def responds(self) -> None:
        """Note that the directory answers, or refuses at once."""
        with self._lock:
            self._hanging = None

    def instances(self, *, fresh: bool = False) -> list[Instance]:
        """The instances of the cluster; those known last, if the directory is away.

        Args:
            fresh: also those that have joined in the last second.

        Raises:
            DirectoryUnavailable: it is away, and none were known before.
        """
        try:
            instances = self.get().instances(fresh=fresh)
        except DirectoryUnavailable:
            self.note_outage()
            with self._lock:
                if self._instances:
                    return self._instances
            raise
        with self._lock:
            self._instances = instances
        return instances

    def note_outage(self) -> None:
        """Note that the directory was away, or forgot instances, just now."""
        with self._lock:
            self._outage_at = time.monotonic()

    def may_be_live(self, instance: Instance) -> bool:
        """Whether an instance is live; or counts as lost, perhaps only because it could not renew its lease.

        When a directory returns after an outage, all leases have ended, and the gateways register one after the other.
        """
        if instance.lost_since is None:
            return True
        with self._lock:
            recent_outage = time.monotonic() - self._outage_at < OUTAGE_SECONDS
        return recent_outage and time.time() - instance.lost_since < OUTAGE_SECONDS + LOST_BEFORE_SECONDS

    def close(self) -> None:
        """Close the directory; it is not opened again."""
        with self._lock:
            self._closed = True
            self._attempted.set()
            directory, self._directory = self._directory, None
        if directory is not None:
            directory.close()
