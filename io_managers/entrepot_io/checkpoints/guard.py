"""Keeping savers and pruners apart, by files that say who is at it.

A saver relies on chunks that no manifest names yet; a pruner removes chunks that no manifest names. Each first writes a
file of its own and then looks for the other's, so that at least one of two sees the other: the pruner then leaves all
chunks, the saver waits for the pruner's end. A file whose writer died counts no longer after a while.
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
    """While this lasts no pruner removes chunks under ``root``.

    Args:
        root: of the checkpoints.
        unsettled: gets the folders that a new root's own folders are entered in.

    Raises:
        Timeout: a pruner was at it for too long.
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
    """While this lasts savers under ``root`` wait; gives the savers that were there before."""
    with _announced(root, PRUNING):
        yield at_it(root, SAVING)


def at_it(root: Place, folder: str) -> list[Found]:
    """The files of those that are at it, without those that are stale."""
    now = time.time()
    return [one for one in root.files(folder) if one.modified is None or now - one.modified < STALE_SECONDS]


@contextmanager
def _announced(root: Place, folder: str, unsettled: Unsettled | None = None) -> Iterator[None]:
    name = f"{folder}/{secrets.token_hex(8)}"
    text = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": time.time()}).encode()
    root.write(name, text, sync=False, unsettled=unsettled)  # who wrote it does not outlive the machine either
    sign = _Sign(root, name, text)
    try:
        _signs.add(sign)
        yield
    finally:
        _signs.end(sign)
        root.remove(name)


class _Sign:
    """A file that says who is at it."""

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
            with suppress(EntrepotError):  # the next write of data tells the user; STALE_SECONDS are many tries
                self._root.write(self._name, self._text, sync=False)

    def end(self) -> None:
        with self._lock:
            self._ended = True


class _Signs:
    """Those of this process, refreshed by one thread that stays: to start one for each small save would cost more than
    the save. It sleeps for as long as there are none."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._signs: set[_Sign] = set()  # guarded by _changed, like the next
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
