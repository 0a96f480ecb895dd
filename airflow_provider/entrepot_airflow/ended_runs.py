"""Sessions of finished DAG runs, for ``entrepot gc`` and for the scheduler (``session_sweeper``).

Imports nothing of Airflow before the scope shows that the sessions belong to this installation.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import unquote

from entrepot.ended_runs import NotLookedAt
from entrepot_io.scopes import folder_scope
from entrepot_io.sessions import run_session

if TYPE_CHECKING:
    from entrepot import Store

ORCHESTRATOR = "airflow"
DELETED = "its DAG run was deleted"
SUCCEEDED = "its DAG run succeeded"


def ended_runs(store: Store, scope: str, sessions: Sequence[str]) -> Mapping[str, str]:
    """Return sessions of runs that succeeded or are no longer in Airflow's database; failed runs may be cleared.

    Args:
        store: the store that has them.
        scope: scope of the sessions; must be this installation's.
        sessions: their names.

    Raises:
        NotLookedAt: the scope belongs to another installation, as far as can be told here, or Airflow is not installed.
        Exception: an error of the database.
    """
    if find_spec("airflow") is None:
        raise NotLookedAt("Airflow is not installed here: run this where it is")
    _silence_alembic()
    own = scope == folder_scope(ORCHESTRATOR, os.path.expandvars(os.environ.get("AIRFLOW_HOME") or "~/airflow"))
    if not own and (not _may_be_configured(scope) or _configured_scope() != scope):
        airflow_home = os.environ.get("AIRFLOW_HOME")
        raise NotLookedAt(
            f"AIRFLOW_HOME={airflow_home} is another installation" if airflow_home else "AIRFLOW_HOME is not set"
        )
    return finished_sessions(sessions, succeeded=True, only_known_dags=own)


def finished_sessions(sessions: Iterable[str], *, succeeded: bool, only_known_dags: bool) -> dict[str, str]:
    """Return the sessions of finished runs that are no longer needed, with the reason.

    Args:
        sessions: their names.
        succeeded: whether to include sessions of runs that succeeded, not only of deleted ones.
        only_known_dags: whether a run counts as deleted only if the database still knows its DAG. Set for scopes that
            are derived from a directory's name only: another installation may have a directory of the same name and
            share the store.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    runs = {run: session for session in sessions if (run := run_of(session)) is not None}
    if not runs:
        return {}
    from entrepot_airflow.compat.database import database_session, existing_dags, run_states

    with database_session() as database:
        states = run_states(list(runs), database)
        if only_known_dags:
            known_dags = existing_dags({dag_id for dag_id, _ in runs.keys() - states.keys()}, database)
            runs = {run: session for run, session in runs.items() if run in states or run[0] in known_dags}
    finished: dict[str, str] = {}
    for run, session in runs.items():
        if run not in states:
            finished[session] = DELETED
        elif succeeded and states[run] == "success":
            finished[session] = SUCCEEDED
    return finished


def run_of(session: str) -> tuple[str, str] | None:
    """Return DAG and run of a session; None: not a run's session, or its name was too long to tell."""
    parts = session.split("/")
    if len(parts) != 3 or parts[0] != ORCHESTRATOR:
        return None
    dag_id, run_id = unquote(parts[1]), unquote(parts[2])
    return (dag_id, run_id) if run_session(ORCHESTRATOR, dag_id, run_id) == session else None


def _configured_scope() -> str | None:
    from entrepot_airflow.configuration import current_settings

    return current_settings().scope


def _silence_alembic() -> None:
    """Silence Alembic, which Airflow's database code imports and which logs every plugin that it sets up."""
    logging.getLogger("alembic").setLevel(logging.WARNING)


def _may_be_configured(scope: str) -> bool:
    """Return whether a scope set by the user may be this installation's; only Airflow's configuration tells."""
    configured = os.environ.get("ENTREPOT_SCOPE")
    if configured:
        return configured == scope
    return bool(os.environ.get("AIRFLOW_HOME")) and not scope.startswith(f"{ORCHESTRATOR}-")
