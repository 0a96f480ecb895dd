"""A thread of the scheduler's process that looks at something now and then, for as long as the scheduler runs.

start(job) --it is a scheduler's--> look, every so often --stop()--> ended
          `--it is another component's, or does not say which--> ended
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

log = logging.getLogger(__name__)
KIND_SECONDS = 60.0  # that a component has to say what it is

# A look at the database is never cut in two by a fork: the executor forks its workers from this process, and what a
# driver has locked at that moment would stay so in them.
_looking = threading.Lock()


def _after_fork_in_child() -> None:
    global _looking
    _looking = threading.Lock()


os.register_at_fork(
    before=lambda: _looking.acquire(), after_in_parent=lambda: _looking.release(), after_in_child=_after_fork_in_child
)


@contextmanager
def looking() -> Iterator[None]:
    """No fork of this process happens in such a block."""
    with _looking:
        yield


class SchedulerThread:
    """One in a process for each purpose; :meth:`start` does something in the scheduler's alone.

    Args:
        name: of the thread.
        period: seconds between looks.
        look: what is done each time. It may raise whatever the database or the store says, which the scheduler has to
            live with: the first failure of a row is logged.
        trouble: what that log line says cannot be done now.
        begins: called once in the scheduler, before the first look.
    """

    def __init__(
        self,
        name: str,
        period: float,
        look: Callable[[], object],
        *,
        trouble: str,
        begins: Callable[[], None] | None = None,
    ) -> None:
        self._name = name
        self.period = period
        self._look = look
        self._trouble = trouble
        self._begins = begins
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Any) -> None:
        """Begin when a job turns out to be the scheduler's.

        Args:
            job: Airflow's; it is told to listeners before it says which kind it is.
        """
        if self.alive:
            return
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(job,), name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what it is doing is finished first."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(KIND_SECONDS)

    def _run(self, job: Any) -> None:
        end = time.monotonic() + KIND_SECONDS
        # Looked up without SQLAlchemy, which might ask the database in the wrong thread.
        while (kind := vars(job).get("job_type")) is None:
            if self._stop.wait(0.05) or time.monotonic() > end:
                return
        if kind != "SchedulerJob":
            return
        if self._begins is not None:
            self._begins()
        failing = False
        while not self._stop.wait(self.period):
            try:
                self._look()
                failing = False
            except Exception as error:
                if not failing:
                    level = logging.INFO if isinstance(error, EntrepotError) else logging.WARNING
                    log.log(level, "Entrepot: %s now: %s", self._trouble, error)
                failing = True
