"""The scheduler's side of giving memory back: values go when their DAG run was deleted, with a policy or without.

A run may be deleted over REST, on the command line or by ``airflow db clean``, and no hook tells of it. So a thread of
the scheduler compares the sessions of the store on its host with the database. It asks the database only about
sessions that nobody has open, and removes one only if that is still so.

on_starting --job is a scheduler's--> (looking, each SWEEP_SECONDS) --run is gone--> its session is removed
                                                                    `--run succeeded, drop_finished--> the same
"""

from __future__ import annotations

import logging
from typing import Any

from airflow.listeners import hookimpl

from entrepot_airflow.configuration import default_scope, option, settings
from entrepot_airflow.scheduler_thread import SchedulerThread, looking

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


def _sweep() -> None:
    with looking():
        sweep_once(succeeded=drops_finished())


SWEEPER = SchedulerThread(
    "entrepot-sweeper", SWEEP_SECONDS, _sweep, trouble="values of deleted runs cannot be looked for"
)


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
