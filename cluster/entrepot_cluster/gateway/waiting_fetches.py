"""Objects that readers wait for, and that no store has published yet.

added ──it is published──▶ being fetched ──▶ answered
  │                             └──not there after all──▶ added
  └──the reader's timeout, or it is sealed here──▶ dropped: the daemon answers
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from entrepot.errors import DirectoryUnavailable, EntrepotError

from entrepot_cluster.gateway.fetcher import is_unknown

if TYPE_CHECKING:
    from entrepot_cluster.gateway.fetcher import Fetcher

LOOK_AGAIN_SECONDS = 0.5
_FETCHES_AT_ONCE = 4

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Wait:
    ids: list[bytes]
    end: float
    answer: Callable[[EntrepotError | None], None]
    is_running: bool = False


class WaitingFetches:
    """Looks again and again for what readers wait for, all of it in one question. Thread-safe.

    Args:
        fetcher: fetches what turns up.
        missing: which of several objects are not in this store.
    """

    def __init__(self, fetcher: Fetcher, missing: Callable[[Sequence[bytes]], list[bytes]]) -> None:
        self._fetcher = fetcher
        self._missing = missing
        self._changed = threading.Condition()
        self._waits: list[_Wait] = []  # guarded by _changed
        self._closed = False  # guarded by _changed
        self._pool = ThreadPoolExecutor(_FETCHES_AT_ONCE, thread_name_prefix="waiting-fetch")
        self._thread = threading.Thread(target=self._run, name="waiting-fetches", daemon=True)
        self._thread.start()

    def add(self, ids: list[bytes], seconds: float, answer: Callable[[EntrepotError | None], None]) -> None:
        """Wait for objects that are not here.

        Args:
            ids: the objects.
            seconds: how long their reader waits.
            answer: called at most once, with None once all are here, or with the reason why they cannot be had.
        """
        with self._changed:
            self._waits.append(_Wait(ids, time.monotonic() + seconds, answer))
            self._changed.notify()

    def close(self) -> None:
        """Look no more."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waits and not self._closed:
                    self._changed.wait()
                if not self._closed:
                    self._changed.wait(LOOK_AGAIN_SECONDS)
                if self._closed:
                    return
                now = time.monotonic()
                self._waits = [wait for wait in self._waits if wait.is_running or wait.end > now]
                idle = [wait for wait in self._waits if not wait.is_running]
            try:
                self._look(idle)
            except DirectoryUnavailable:
                continue  # membership reports it
            except EntrepotError:
                _log.exception("what readers wait for could not be looked up, which is tried again")

    def _look(self, idle: list[_Wait]) -> None:
        missing = set(self._missing(list({oid: None for wait in idle for oid in wait.ids})))
        published = self._fetcher.published(list(missing))
        for wait in idle:
            if all(oid not in missing or oid in published for oid in wait.ids):
                wait.is_running = True
                self._pool.submit(self._fetch, wait)

    def _fetch(self, wait: _Wait) -> None:
        try:
            errors = self._fetcher.fetch(self._missing(wait.ids))
        except Exception as error:
            _log.exception("a fetch failed")
            errors = [EntrepotError(f"the gateway failed: {type(error).__name__}: {error}; see its log")]
        failures = [error for error in errors if error is not None]
        final = next((error for error in failures if not is_unknown(error)), None)
        with self._changed:
            wait.is_running = False
            if failures and final is None:
                return  # gone again: look once more
            self._waits.remove(wait)
        wait.answer(final)
