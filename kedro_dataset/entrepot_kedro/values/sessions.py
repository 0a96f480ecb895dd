"""Scope and session of a Kedro dataset.

The session is that of the run, so that concurrent runs never mix: ``kedro run`` gives all datasets of one run the same
save version, its session ID. If one run is spread over several ``kedro run`` commands, the session comes from outside:
an argument, ``ENTREPOT_SESSION``, or the DAG run if Airflow runs them.
"""

from __future__ import annotations

import importlib.util
import os
import time
from dataclasses import dataclass
from pathlib import Path

from entrepot_io.scopes import folder_scope
from entrepot_io.sessions import kedro_session_in_airflow, run_session
from kedro.utils import find_kedro_project

# The session of each process, by PID: a fork inherits the entries of its ancestors, and has one of its own.
_process_sessions: dict[int, str] = {}


@dataclass(frozen=True)
class Session:
    """A session of the store.

    Attributes:
        name: its name; empty for the scope's own session, which outlives all runs.
        ends_with_run: nobody reads it after the run, so the last consumer's release drops the object.
        is_of_process: its datasets belong to no run, but to the process that created them.
    """

    name: str
    ends_with_run: bool
    is_of_process: bool = False


def project_folder() -> Path:
    """Return the directory of this Kedro project; outside of one, the current directory."""
    from kedro.framework import project

    package = project.PACKAGE_NAME
    folder = Path.cwd()
    if package is not None:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            folder = Path(spec.origin).parent
    return find_kedro_project(folder) or folder


def default_scope() -> str:
    """Return the scope of this Kedro project, derived from its directory."""
    return folder_scope("kedro", project_folder())


def session_of(session: str | None, save_version: str | None) -> Session:
    """Return the session of a dataset.

    Args:
        session: the user's argument; empty for the scope's own session.
        save_version: save version of the catalog, if there is one.
    """
    if session is None:
        session = os.environ.get("ENTREPOT_SESSION") or None
    if session is not None:
        return Session(session, ends_with_run=False)
    dag, run = os.environ.get("AIRFLOW_CTX_DAG_ID"), os.environ.get("AIRFLOW_CTX_DAG_RUN_ID")
    if dag and run:
        return Session(kedro_session_in_airflow(dag, run), ends_with_run=False)
    if not save_version:
        return Session(_process_session(), ends_with_run=True, is_of_process=True)
    return Session(run_session("kedro", save_version), ends_with_run=True)


def _process_session() -> str:
    """Return the session of datasets that this process creates in Python, outside a catalog with versions."""
    pid = os.getpid()
    if pid not in _process_sessions:
        run_id = f"{time.strftime('%Y-%m-%dT%H.%M.%S', time.gmtime())}-{pid}-{os.urandom(3).hex()}"
        return _process_sessions.setdefault(pid, run_session("kedro", run_id))  # another thread may have been first
    return _process_sessions[pid]


def is_run_session(session: str) -> bool:
    """Return whether a session named from outside is that of an earlier run, which this one continues."""
    parts = session.split("/")
    return len(parts) == 2 and parts[0] == "kedro" and session == os.environ.get("ENTREPOT_SESSION")
