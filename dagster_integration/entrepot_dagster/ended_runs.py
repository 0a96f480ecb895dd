"""Sessions of finished Dagster runs, for ``entrepot gc``.

Imports nothing of Dagster before the scope shows that the sessions may belong to this instance.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import unquote

from entrepot.ended_runs import NotLookedAt
from entrepot_io.sessions import run_session

if TYPE_CHECKING:
    from dagster import DagsterInstance
    from entrepot import Store

ORCHESTRATOR = "dagster"
DELETED = "its run was deleted"
SUCCEEDED = "its run succeeded"
_BATCH_SIZE = 200  # runs per query


def ended_runs(store: Store, scope: str, sessions: Sequence[str]) -> Mapping[str, str]:
    """Return sessions of runs that succeeded or were deleted in ``DAGSTER_HOME``'s instance; failed runs may continue.

    In a scope that other instances have written to, too, a run that this one does not know may be theirs: it is left.

    Args:
        store: the store that has them.
        scope: scope of the sessions; must be this instance's.
        sessions: their names.

    Raises:
        NotLookedAt: the scope belongs to another instance, as far as can be told here, or Dagster is not installed.
        Exception: an error of the instance's storage.
    """
    if find_spec("dagster") is None:
        raise NotLookedAt("Dagster is not installed here: run this where it is")
    configured_scope = os.environ.get("ENTREPOT_SCOPE")
    if not os.environ.get("DAGSTER_HOME"):
        raise NotLookedAt("DAGSTER_HOME is not set")
    other_instance = f"DAGSTER_HOME={os.environ['DAGSTER_HOME']} is another instance"
    if not (scope == configured_scope or scope.startswith(f"{ORCHESTRATOR}-")):
        raise NotLookedAt(other_instance)
    from dagster import DagsterInstance

    from entrepot_dagster.values.keys import default_scope

    with DagsterInstance.get() as instance:
        if scope not in (configured_scope, default_scope(instance)):
            raise NotLookedAt(other_instance)
        finished = finished_sessions(instance, sessions, succeeded=True)
        if scope == configured_scope and _is_shared(instance, store, scope):
            return {session: reason for session, reason in finished.items() if reason != DELETED}
        return finished


def _is_shared(instance: DagsterInstance, store: Store, scope: str) -> bool:
    from entrepot_io.connections import unshared_store
    from entrepot_io.sessions import SCOPE_SESSION

    from entrepot_dagster.values.deployments import other_deployments

    with unshared_store(store.address, scope, SCOPE_SESSION, durable=False) as own_session:
        return bool(other_deployments(instance, own_session))


def finished_sessions(instance: DagsterInstance, sessions: Iterable[str], *, succeeded: bool) -> dict[str, str]:
    """Return the sessions of finished runs that are no longer needed, with the reason.

    Args:
        instance: the instance that knows the runs.
        sessions: their names.
        succeeded: whether to include sessions of runs that succeeded, not only of deleted ones.
    """
    from dagster import DagsterRunStatus, RunsFilter

    sessions_by_run = {run: session for session in sessions if (run := run_id_of(session)) is not None}
    ids = list(sessions_by_run)
    statuses: dict[str, DagsterRunStatus] = {}
    for begin in range(0, len(ids), _BATCH_SIZE):
        batch = instance.get_runs(RunsFilter(run_ids=ids[begin : begin + _BATCH_SIZE]))
        statuses.update((run.run_id, run.status) for run in batch)
    reasons: dict[str, str] = {}
    for run, session in sessions_by_run.items():
        if run not in statuses:
            reasons[session] = DELETED
        elif succeeded and statuses[run] is DagsterRunStatus.SUCCESS:
            reasons[session] = SUCCEEDED
    return reasons


def run_id_of(session: str) -> str | None:
    """Return the run of a session; None: not a run's (sessions of ephemeral instances' assets have longer names)."""
    parts = session.split("/")
    if len(parts) != 2 or parts[0] != ORCHESTRATOR or parts[1] == "ephemeral":
        return None
    run_id = unquote(parts[1])
    return run_id if run_session(ORCHESTRATOR, run_id) == session else None
