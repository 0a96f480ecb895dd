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

from entrepot_io.checkpoints.chunks import SHARED
from entrepot_io.checkpoints.places import Found, Place, Unsettled

SAVING = f"{SHARED}/saving"
PRUNING = f"{SHARED}/pruning"
REFRESH_SECONDS = 60.0
STALE_SECONDS = 15 * 60.0
PRUNE_WAIT_SECONDS = 120.0
LOOK_SECONDS = 0.2


@contextmanager
def saving(root: Place, unsettled: Unsettled | None = None) -> Iterator[None]:
    """Context in which no prune removes chunks under ``root``.

    Args:
        root: of the checkpoints.
        unsettled: collects the directories in which directories made for a new root were created.

    Raises:
        Timeout: a prune took too long.
    """
    with _announced(root, SAVING, unsettled):
        end = time.monotonic() + PRUNE_WAIT_SECONDS
        while others := at_it(root, PRUNING):
            if time.monotonic() > end:
                raise Timeout(
                    f"a prune of {root.url} has not ended within {PRUNE_WAIT_SECONDS:.0f} s "
                    f"({root.url}/{others[0].name}): try again; if no prune runs, remove that file"
                )
            time.sleep(LOOK_SECONDS)
        yield


@contextmanager
def pruning(root: Place) -> Iterator[list[Found]]:
    """Context in which saves under ``root`` wait; yields the saves that were already running."""
    with _announced(root, PRUNING):
        yield at_it(root, SAVING)


def at_it(root: Place, folder: str) -> list[Found]:
    """The lock files in a directory, except stale ones."""
    now = time.time()
    return [one for one in root.files(folder) if one.modified is None or now - one.modified < STALE_SECONDS]


@contextmanager
def _announced(root: Place, folder: str, unsettled: Unsettled | None = None) -> Iterator[None]:
    name = f"{folder}/{secrets.token_hex(8)}"
    text = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}).encode()
    root.write(name, text, sync=False, unsettled=unsettled)  # its writer does not survive a crash either
    sign = _Sign(root, name, text)
    try:
        _signs.add(sign)
        yield
    finally:
        _signs.end(sign)
        root.remove(name)


class _Sign:
    """One lock file of this process."""

    def __init__(self, root: Place, name: str, text: bytes) -> None:
        self._root = root
        self._name = name
        self._text = text
        self._lock = threading.Lock()
        self._ended = False  # guarded by _lock

    def refresh(self) -> None:
        with self._lock:
            if self._ended:
                return
            with suppress(EntrepotError):  # later data writes report the error; STALE_SECONDS allows for many attempts
                self._root.write(self._name, self._text, sync=False)

    def end(self) -> None:
        with self._lock:
            self._ended = True


class _Signs:
    """The lock files of this process, refreshed by one permanent thread, which sleeps while there are none: starting a
    thread for each small save would cost more than the save.
    """

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._signs: set[_Sign] = set()  # guarded by _changed, as is the next
        self._thread: threading.Thread | None = None

    def add(self, sign: _Sign) -> None:
        with self._changed:
            self._signs.add(sign)
            self._changed.notify()
            if self._thread is None:
                thread = threading.Thread(target=self._refresh, name="entrepot-saving", daemon=True)
                thread.start()
                self._thread = thread

    def end(self, sign: _Sign) -> None:
        with self._changed:
            self._signs.discard(sign)
            self._changed.notify()
        sign.end()

    def _refresh(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._signs)
                self._changed.wait_for(lambda: not self._signs, REFRESH_SECONDS)
                signs = list(self._signs)
            for sign in signs:
                sign.refresh()


_signs = _Signs()
