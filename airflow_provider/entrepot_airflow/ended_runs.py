"""Sessions of finished DAG runs, for ``entrepot gc`` and for the scheduler (``session_sweeper``).

Imports nothing of Airflow before the scope shows that the sessions belong to this installation.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from entrepot.ended_runs import NotLookedAt
from entrepot_io.scopes import folder_scope

from entrepot_airflow.lifetime.judgement import ORCHESTRATOR, judge_sessions

if TYPE_CHECKING:
    from entrepot import Store


def ended_runs(store: Store, scope: str, sessions: Sequence[str]) -> Mapping[str, str]:
    """Return sessions of runs that are no longer in Airflow's database, or whose values are no longer needed.

    Without rules in Airflow's configuration (``lifetime``), that is so for runs that succeeded; failed ones may be
    cleared.

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
    from entrepot_airflow.compat.database import database_session
    from entrepot_airflow.lifetime.rules import LifetimeRules, configured_rules

    rules = configured_rules()
    if rules.empty:
        rules = LifetimeRules(after_success=0.0)
    with database_session(own=True) as database:
        decisions, _ = judge_sessions(sessions, rules, only_known_dags=own, database=database)
    return {session: decision.why for session, decision in decisions.items() if decision.remove}


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
