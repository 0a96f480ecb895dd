"""Which sessions belong to runs that are over: asked by ``entrepot gc``.

Nothing of Dagster is imported before the scope says that the sessions may be those of this instance.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from entrepot.ended_runs import NotLookedAt
from entrepot_io.sessions import run_session

if TYPE_CHECKING:
    from dagster import DagsterInstance
    from entrepot import Store

HOST = "dagster"
DELETED = "its run was deleted"
SUCCEEDED = "its run succeeded"
_BATCH = 200  # runs that one query asks for


def ended_runs(store: Store, scope: str, sessions: Sequence[str]) -> Mapping[str, str]:
    """Sessions of runs that the instance of ``DAGSTER_HOME`` has no more, or that succeeded; failed ones may go on.

    Args:
        store: where they are.
        scope: another instance's says nothing here.
        sessions: their names.

    Raises:
        NotLookedAt: the scope is another instance's, as far as can be told here.
        Exception: whatever the instance's storage says.
    """
    named = os.environ.get("ENTREPOT_SCOPE")
    if not os.environ.get("DAGSTER_HOME"):
        raise NotLookedAt("DAGSTER_HOME is not set")
    elsewhere = f"DAGSTER_HOME={os.environ['DAGSTER_HOME']} is another instance"
    if not (scope == named or scope.startswith(f"{HOST}-")):
        raise NotLookedAt(elsewhere)
    from dagster import DagsterInstance

    from entrepot_dagster.places import default_scope

    with DagsterInstance.get() as instance:
        if scope not in (named, default_scope(instance)):
            raise NotLookedAt(elsewhere)
        return over(instance, sessions, succeeded=True)


def over(instance: DagsterInstance, sessions: Iterable[str], *, succeeded: bool) -> dict[str, str]:
    """Why the sessions of runs that are over are not needed any more.

    Args:
        instance: that knows its runs.
        sessions: their names.
        succeeded: whether those of runs that ended well count.
    """
    from dagster import DagsterRunStatus, RunsFilter

    runs = {run: session for session in sessions if (run := run_of(session)) is not None}
    ids = list(runs)
    states: dict[str, DagsterRunStatus] = {}
    for begin in range(0, len(ids), _BATCH):
        found = instance.get_runs(RunsFilter(run_ids=ids[begin : begin + _BATCH]))
        states.update((run.run_id, run.status) for run in found)
    told: dict[str, str] = {}
    for run, session in runs.items():
        if run not in states:
            told[session] = DELETED
        elif succeeded and states[run] is DagsterRunStatus.SUCCESS:
            told[session] = SUCCEEDED
    return told


def run_of(session: str) -> str | None:
    """The run of a session; None: it is no run's (an ephemeral instance's assets have a longer name)."""
    parts = session.split("/")
    if len(parts) != 2 or parts[0] != HOST or parts[1] == "ephemeral":
        return None
    run = unquote(parts[1])
    return run if run_session(HOST, run) == session else None
