"""Periodic thread in the scheduler's process, for as long as the scheduler runs.

start(job) --the job is a scheduler's--> poll periodically --stop()--> ended
          `--another component's, or kind not set in time--> ended
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from entrepot.errors import EntrepotError
from entrepot_io.plain_log import plain_logger

from entrepot_airflow.compat.components import SCHEDULER_KIND, job_kind

log = plain_logger(__name__)
KIND_SECONDS = 60.0  # how long a component may take to set its kind

# A poll of the database must never be interrupted by a fork: the executor forks its workers from this process, and
# locks held by a database driver at that moment would stay locked in them.
_fork_lock = threading.Lock()


def _after_fork_in_child() -> None:
    global _fork_lock
    _fork_lock = threading.Lock()


os.register_at_fork(
    before=lambda: _fork_lock.acquire(),
    after_in_parent=lambda: _fork_lock.release(),
    after_in_child=_after_fork_in_child,
)


@contextmanager
def block_forks() -> Iterator[None]:
    """Block forks of this process while in the block."""
    with _fork_lock:
        yield


class SchedulerThread:
    """Periodic thread, one per process and purpose; :meth:`start` has an effect in the scheduler only.

    Args:
        name: name of the thread.
        period: seconds between polls.
        poll: called for each poll. It may raise any error of database or store, which the scheduler must tolerate; the
            first failure in a row is logged.
        failure_message: says in that log line what cannot be done.
        on_begin: called once in the scheduler, before the first poll.
    """

    def __init__(
        self,
        name: str,
        period: float,
        poll: Callable[[], object],
        *,
        failure_message: str,
        on_begin: Callable[[], None] | None = None,
    ) -> None:
        self._name = name
        self.period = period
        self._poll = poll
        self._failure_message = failure_message
        self._on_begin = on_begin
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Any) -> None:
        """Start the thread; it begins polling once the job turns out to be the scheduler's.

        Args:
            job: Airflow's job; listeners get it before its kind is set.
        """
        if self.alive:
            return
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(job,), name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, after the poll in progress."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(KIND_SECONDS)

    def _run(self, job: Any) -> None:
        end = time.monotonic() + KIND_SECONDS
        while (kind := job_kind(job)) is None:
            if self._stop.wait(0.05) or time.monotonic() > end:
                return
        if kind != SCHEDULER_KIND:
            return
        if self._on_begin is not None:
            self._on_begin()
        failing = False
        while not self._stop.wait(self.period):
            try:
                self._poll()
                failing = False
            except Exception as error:
                if not failing:
                    level = logging.INFO if isinstance(error, EntrepotError) else logging.WARNING
                    log.log(level, "Entrepot: %s, will retry: %s", self._failure_message, error)
                failing = True
