"""Removal of deleted DAG runs' values by the scheduler, with or without a policy.

A run may be deleted over REST, on the command line or by ``airflow db clean``, and no hook reports it. So a thread of
the scheduler compares the sessions in its host's store with the database. It considers only sessions that nobody has
open, and removes one only if that is still so.

on_starting --job is a scheduler's--> (polling, every SWEEP_SECONDS) --run is gone--> its session is removed
                                                                     `--run succeeded, drop_finished--> the same
"""

from __future__ import annotations

import logging
from typing import Any

from airflow.listeners import hookimpl

from entrepot_airflow.compat.components import is_job
from entrepot_airflow.configuration import current_settings, default_scope, option
from entrepot_airflow.scheduler_thread import SchedulerThread, block_forks

log = logging.getLogger(__name__)
SWEEP_SECONDS = 30.0
_TRUE = ("1", "true", "yes", "on", "t", "y")


def drops_finished() -> bool:
    """Return ``[entrepot] drop_finished``: whether a successful run's values are removed once nobody reads them."""
    return (option("drop_finished") or "").lower() in _TRUE


def sweep_once(*, succeeded: bool) -> list[str]:
    """Remove the sessions of deleted runs; return their names.

    Args:
        succeeded: whether to remove those of runs that succeeded too.

    Raises:
        EntrepotError: the store cannot be reached.
        SQLAlchemyError: the database does not answer.
    """
    import entrepot
    from entrepot import garbage

    from entrepot_airflow.ended_runs import finished_sessions

    settings = current_settings()
    if not garbage.store_answers(settings.address):
        return []  # nothing to remove, and no reason to start a store
    scope = settings.scope or default_scope()
    removed: list[str] = []
    # Connect only briefly: the executor forks from this process.
    with entrepot.connect(settings.address, scope=scope, session="") as store:
        unused = garbage.unused_sessions(store, scope)
        for name, reason in finished_sessions(
            unused, succeeded=succeeded, only_known_dags=settings.scope is None
        ).items():
            if not garbage.remove_session(store, scope, name, unused[name]):
                log.info("Entrepot: removed the values of %s: %s", name, reason)
                removed.append(name)
    return removed


def _sweep() -> None:
    with block_forks():
        sweep_once(succeeded=drops_finished())


SWEEPER = SchedulerThread(
    "entrepot-sweeper", SWEEP_SECONDS, _sweep, failure_message="cannot remove the values of deleted runs"
)


@hookimpl
def on_starting(component: Any) -> None:
    """Start the sweeper with the scheduler."""
    if is_job(component):
        SWEEPER.start(component)


@hookimpl
def before_stopping(component: Any) -> None:
    """Stop the sweeper with the scheduler."""
    if is_job(component):
        SWEEPER.stop()
