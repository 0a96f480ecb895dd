"""Mutual exclusion of saves and prunes, by lock files.

A save relies on chunks that no manifest names yet; a prune removes chunks that no manifest names. Each first writes a
file of its own and then looks for the other's, so that at least one of the two sees the other: the prune then leaves
all chunks alone, the save waits for the prune to end. A file whose writer died becomes stale after a while and is
ignored.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from entrepot.errors import EntrepotError, Timeout

from entrepot_checkpoints.storage.chunks import SHARED_FOLDER
from entrepot_checkpoints.storage.directory import FileEntry, StorageDirectory, UnsyncedFolders

SAVE_LOCKS = f"{SHARED_FOLDER}/saving"
PRUNE_LOCKS = f"{SHARED_FOLDER}/pruning"
REFRESH_SECONDS = 60.0
STALE_SECONDS = 15 * 60.0
PRUNE_WAIT_SECONDS = 120.0
POLL_SECONDS = 0.2


@contextmanager
def save_lock(root: StorageDirectory, unsynced: UnsyncedFolders | None = None) -> Iterator[None]:
    """Context in which no prune removes chunks under ``root``.

    Args:
        root: of the checkpoints.
        unsynced: collects the directories in which directories made for a new root were created.

    Raises:
        Timeout: a prune took too long.
    """
    with _lock_file(root, SAVE_LOCKS, unsynced):
        deadline = time.monotonic() + PRUNE_WAIT_SECONDS
        while others := active_locks(root, PRUNE_LOCKS):
            if time.monotonic() > deadline:
                raise Timeout(
                    f"a prune of {root.url} did not finish within {PRUNE_WAIT_SECONDS:.0f} s "
                    f"({root.url}/{others[0].name}): try again; if no prune is running, remove that file"
                )
            time.sleep(POLL_SECONDS)
        yield


@contextmanager
def prune_lock(root: StorageDirectory) -> Iterator[list[FileEntry]]:
    """Context in which saves under ``root`` wait; yields the saves that were already running."""
    with _lock_file(root, PRUNE_LOCKS):
        yield active_locks(root, SAVE_LOCKS)


def active_locks(root: StorageDirectory, folder: str) -> list[FileEntry]:
    """The lock files in a directory, except stale ones."""
    now = time.time()
    return [lock for lock in root.files(folder) if lock.modified is None or now - lock.modified < STALE_SECONDS]


@contextmanager
def _lock_file(root: StorageDirectory, folder: str, unsynced: UnsyncedFolders | None = None) -> Iterator[None]:
    name = f"{folder}/{secrets.token_hex(8)}"
    text = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}).encode()
    root.write(name, text, sync=False, unsynced=unsynced)  # its writer does not survive a crash either
    lock = _LockFile(root, name, text)
    try:
        _refresher.add(lock)
        yield
    finally:
        _refresher.remove(lock)
        root.remove(name)


class _LockFile:
    """One lock file of this process."""

    def __init__(self, root: StorageDirectory, name: str, text: bytes) -> None:
        self._root = root
        self._name = name
        self._text = text
        self._lock = threading.Lock()
        self._stopped = False  # guarded by _lock

    def refresh(self) -> None:
        with self._lock:
            if self._stopped:
                return
            with suppress(EntrepotError):  # later data writes report the error; STALE_SECONDS allows for many attempts
                self._root.write(self._name, self._text, sync=False)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True


class _LockFileRefresher:
    """The lock files of this process, refreshed by one permanent thread, which sleeps while there are none: starting a
    thread for each small save would cost more than the save.
    """

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._lock_files: set[_LockFile] = set()  # guarded by _changed, as is the next
        self._thread: threading.Thread | None = None

    def add(self, lock: _LockFile) -> None:
        with self._changed:
            self._lock_files.add(lock)
            self._changed.notify()
            if self._thread is None:
                thread = threading.Thread(target=self._refresh, name="entrepot-saving", daemon=True)
                thread.start()
                self._thread = thread

    def remove(self, lock: _LockFile) -> None:
        with self._changed:
            self._lock_files.discard(lock)
            self._changed.notify()
        lock.stop()

    def _refresh(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lock_files)
                self._changed.wait_for(lambda: not self._lock_files, REFRESH_SECONDS)
                locks = list(self._lock_files)
            for lock in locks:
                lock.refresh()


_refresher = _LockFileRefresher()
