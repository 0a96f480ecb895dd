"""Access to the cluster's directory, which may be away when the gateway starts."""

from __future__ import annotations

import threading
from urllib.parse import urlsplit

from entrepot.errors import DirectoryUnavailable

from entrepot_cluster.directory.directory import Directory
from entrepot_cluster.directory.opening import open_directory


FIRST_ATTEMPT_SECONDS = 10.0


def cluster_name(url: str) -> str:
    """Return the cluster's name in the URL of a directory; the URL is checked when it is opened."""
    return urlsplit(url).path.rpartition("/")[2]


class DirectoryAccess:
    """Opens the directory as soon as it can be reached. Thread-safe.

        not reached ──open()──▶ opened ──close()──▶ closed
           └──close()──▶ closed

    Args:
        url: of the directory.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._directory: Directory | None = None  # guarded by _lock
        self._error: DirectoryUnavailable | None = None  # guarded by _lock: of the last attempt
        self._closed = False  # guarded by _lock
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
            DirectoryUnavailable: it was not reached yet.
        """
        self._attempted.wait(FIRST_ATTEMPT_SECONDS)
        with self._lock:
            if self._directory is not None:
                return self._directory
            raise DirectoryUnavailable(f"the cluster's directory was not reached yet: {self._error or 'wait a moment'}")

    def close(self) -> None:
        """Close the directory; it is not opened again."""
        with self._lock:
            self._closed = True
            self._attempted.set()
            directory, self._directory = self._directory, None
        if directory is not None:
            directory.close()
