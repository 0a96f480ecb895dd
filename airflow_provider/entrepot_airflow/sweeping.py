"""The scheduler's side of giving memory back: values go when their DAG run was deleted, with a policy or without.

A run may be deleted over REST, on the command line or by ``airflow db clean``, and no hook tells of it. So a thread of
the scheduler compares the sessions of the store on its host with the database. It asks the database only about
sessions that nobody has open, and removes one only if that is still so.

on_starting --job is a scheduler's--> (looking, each SWEEP_SECONDS) --run is gone--> its session is removed
                                                                    `--run succeeded, drop_finished--> the same
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from airflow.listeners import hookimpl
from entrepot.errors import EntrepotError

from entrepot_airflow.clerk import KIND_SECONDS, looking
from entrepot_airflow.configuration import default_scope, option, settings

log = logging.getLogger(__name__)
SWEEP_SECONDS = 30.0
_TRUE = ("1", "true", "yes", "on", "t", "y")


def drops_finished() -> bool:
    """Whether the values of a run that succeeded go as soon as nobody reads them: ``[entrepot] drop_finished``."""
    return (option("drop_finished") or "").lower() in _TRUE


def sweep_once(*, succeeded: bool) -> list[str]:
    """Remove the sessions of runs that are gone; their names.

    Args:
        succeeded: whether those of runs that ended well go too.

    Raises:
        EntrepotError: the store cannot be reached.
        SQLAlchemyError: the database does not answer.
    """
    import entrepot
    from entrepot import garbage

    from entrepot_airflow.ended_runs import over

    now = settings()
    if not garbage.store_answers(now.address):
        return []  # nothing to give back, and no store is started for that
    scope = now.scope or default_scope()
    gone: list[str] = []
    # A connection of a moment: the executor forks from this process.
    with entrepot.connect(now.address, scope=scope, session="") as store:
        unused = garbage.unused_sessions(store, scope)
        for name, why in over(unused, succeeded=succeeded, known_dags=now.scope is None).items():
            if not garbage.remove_session(store, scope, name, unused[name]):
                log.info("Entrepot: removed the values of %s: %s", name, why)
                gone.append(name)
    return gone


class Sweeper:
    """The thread. One in a process; :meth:`start` in the scheduler's alone."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, job: Any) -> None:
        """Begin when a job turns out to be the scheduler's; as :meth:`entrepot_airflow.clerk.Clerk.start`."""
        if self._thread is not None and self._thread.is_alive():
            return
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, args=(job,), name="entrepot-sweeper", daemon=True)
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
        failing = False
        while not self._stop.wait(SWEEP_SECONDS):
            try:
                with looking():
                    sweep_once(succeeded=drops_finished())
                failing = False
            except Exception as error:  # whatever the database or the store says: the scheduler has to live with it
                if not failing:
                    level = logging.INFO if isinstance(error, EntrepotError) else logging.WARNING
                    log.log(level, "Entrepot: values of deleted runs cannot be looked for now: %s", error)
                failing = True


SWEEPER = Sweeper()


@hookimpl
def on_starting(component: Any) -> None:
    """A component starts: the sweeper goes with the scheduler."""
    if type(component).__name__ == "Job":
        SWEEPER.start(component)


@hookimpl
def before_stopping(component: Any) -> None:
    """A component ends."""
    if type(component).__name__ == "Job":
        SWEEPER.stop()
