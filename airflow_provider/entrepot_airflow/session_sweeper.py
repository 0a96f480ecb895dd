"""Removal of deleted DAG runs' values by the scheduler, with or without a policy.

A run may be deleted over REST, on the command line or by ``airflow db clean``, and no hook reports it. So a thread of
the scheduler compares the sessions in its host's store with the database. It considers only sessions that nobody has
open, and removes one only if that is still so.

on_starting --job is a scheduler's--> (polling, every SWEEP_SECONDS) --run is gone--> its session is removed
                                                                     `--run ended, and a rule says so--> the same
                                                                     `--value of no XCom--> the value is removed

Each time, it asks the store for its sessions, and lists at most about ``SWEEP_OBJECTS`` of their objects.
"""

from __future__ import annotations

from typing import Any

from airflow.listeners import hookimpl
from entrepot.errors import InvalidArgument
from entrepot_io.plain_log import plain_logger

from entrepot_airflow.compat.components import is_job
from entrepot_airflow.configuration import current_settings, default_scope
from entrepot_airflow.lifetime.orphans import OrphanSearch
from entrepot_airflow.lifetime.rules import LifetimeRules, configured_rules
from entrepot_airflow.scheduler_thread import SchedulerThread, block_forks

log = plain_logger(__name__)
SWEEP_SECONDS = 30.0
SWEEP_OBJECTS = 10_000  # listed in a tenth of a second; the scheduler forks no task meanwhile


def sweep_once(rules: LifetimeRules, search: OrphanSearch | None = None) -> list[str]:
    """Remove the sessions of deleted runs, and of those whose time has passed; return their names.

    Args:
        rules: for runs that have ended.
        search: for values of no XCom, as for :func:`reconciler.find`.

    Raises:
        EntrepotError: the store cannot be reached.
        SQLAlchemyError: the database does not answer.
    """
    import entrepot
    from entrepot import garbage

    from entrepot_airflow import reconciler

    settings = current_settings()
    if not garbage.store_answers(settings.address):
        return []  # nothing to remove, and no reason to start a store
    scope = settings.scope or default_scope()
    # Connect only briefly: the executor forks from this process.
    with entrepot.connect(settings.address, scope=scope, session="") as store:
        verdicts = reconciler.find(store, scope, rules, only_known_dags=settings.scope is None, search=search)
        removed, _ = reconciler.remove(store, scope, verdicts)  # what was not removed now is looked at again
    for verdict in removed:
        what = verdict.session if verdict.object is None else f"{verdict.name} in {verdict.session}"
        log.info("Entrepot: removed the values of %s: %s", what, verdict.decision.why)
    return [verdict.session for verdict in removed if verdict.object is None]


_search = OrphanSearch(SWEEP_OBJECTS)  # only the sweeper's thread uses it


def _sweep() -> None:
    try:
        rules = configured_rules()
    except InvalidArgument as error:
        raise ValueError(str(error)) from error  # so that the log has it as a warning
    with block_forks():
        sweep_once(rules, _search)


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
