"""Decisions about the sessions of runs, from the runs in Airflow's database and from what still refers to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote

from entrepot_io.sessions import run_session

from entrepot_airflow.compat.database import existing_dags
from entrepot_airflow.compat.run_records import asset_consumers, ended_records, foreign_references, newest_runs
from entrepot_airflow.lifetime.decisions import Decision, Run, RunRecord, decide

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from entrepot_airflow.lifetime.rules import LifetimeRules

ORCHESTRATOR = "airflow"


def run_of(session: str) -> tuple[str, str] | None:
    """Return DAG and run of a session; None: not a run's session, or its name was too long to tell."""
    parts = session.split("/")
    if len(parts) != 3 or parts[0] != ORCHESTRATOR:
        return None
    dag_id, run_id = unquote(parts[1]), unquote(parts[2])
    return (dag_id, run_id) if run_session(ORCHESTRATOR, dag_id, run_id) == session else None


def judge_sessions(
    sessions: Iterable[str], rules: LifetimeRules, *, only_known_dags: bool, database: Session
) -> tuple[dict[str, Decision], dict[Run, RunRecord]]:
    """Decide about the sessions of runs; other sessions are ignored.

    Args:
        sessions: their names.
        rules: the rules of the deployment.
        only_known_dags: whether a run counts as deleted only if the database knows its DAG: for scopes that another
            installation may have, too.
        database: database session.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    by_run = {run: session for session in sessions if (run := run_of(session)) is not None}
    if not by_run:
        return {}, {}
    records = {run: RunRecord(*values) for run, values in ended_records(by_run.keys(), database).items()}
    missing = by_run.keys() - records.keys()
    known_dags = existing_dags({dag_id for dag_id, _ in missing}, database) if only_known_dags else None
    ended = {run for run, record in records.items() if rules.limit(record.state) is not None}
    newest: set[Run] = set()
    needed: dict[Run, str] = {}
    if ended:
        if rules.keep_runs:
            newest = newest_runs({dag_id for dag_id, _ in ended}, rules.keep_runs, database)
        needed = _needed(ended - newest, by_run, database)
    decisions = decide(by_run, records, rules, known_dags=known_dags, newest=newest, needed=needed)
    return {by_run[run]: decision for run, decision in decisions.items()}, records


def _needed(runs: Collection[Run], by_run: Mapping[Run, str], database: Session) -> dict[Run, str]:
    needed = asset_consumers(runs, database)
    owners = {by_run[run]: run for run in runs}
    for session, reader, task_id in foreign_references(owners.keys(), database):
        if reader != owners[session]:
            needed.setdefault(owners[session], f"an XCom of {reader[0]}/{reader[1]}/{task_id} refers to it")
    return needed
