"""Compares what a store has with Airflow's database, and removes what no run needs any more.

Two things are removed: the sessions of runs (rules: ``lifetime``), and within the sessions of ended runs, the values
that no XCom refers to: those of tasks that were killed before Airflow had their XCom, or whose XCom was deleted.

Nothing is removed that a process has open or has used since, or whose run was cleared since: the daemon checks the
former, and the run's row is locked against clearing while its values are removed. If the database does not answer,
everything stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from entrepot import garbage
from entrepot.ids import ObjectID

from entrepot_airflow.compat.database import database_session
from entrepot_airflow.compat.run_records import lock_run
from entrepot_airflow.lifetime.decisions import ENDED, Decision, Run, RunRecord
from entrepot_airflow.lifetime.judgement import judge_sessions, run_of
from entrepot_airflow.lifetime.orphans import OrphanSearch
from entrepot_airflow.lifetime.rules import LifetimeRules

if TYPE_CHECKING:
    from entrepot import Store
    from sqlalchemy.orm import Session

ORPHAN_SECONDS = 600.0  # after the end of a run; Airflow may still store the XCom of a task that it takes for dead
NO_XCOM = "no XCom refers to it"


@dataclass(frozen=True)
class Verdict:
    """What happens to a session, or to a value in one.

    Attributes:
        session: its name.
        decision: whether it is removed, and why.
        objects, nbytes: how many objects, and their size.
        object: ID of a value within a session that is kept; None: the session as a whole.
        name: of the value.
        run: of the session.
        record: the run as the database had it; None: it did not have it.
        last_used: last use of the session, in nanoseconds since 1970.
    """

    session: str
    decision: Decision
    objects: int
    nbytes: int
    object: ObjectID | None
    name: str
    run: Run
    record: RunRecord | None
    last_used: int


def find(
    store: Store, scope: str, rules: LifetimeRules, *, only_known_dags: bool, search: OrphanSearch | None = None
) -> list[Verdict]:
    """Decide about everything of an installation in a store that nobody has open; removes nothing.

    Args:
        store: any session of the store.
        scope: of the installation.
        rules: of the installation.
        only_known_dags: as for :func:`judge_sessions`.
        search: looks for values that no XCom refers to, as far as its limit allows; None: in all sessions.

    Raises:
        EntrepotError: the store does not answer.
        SQLAlchemyError: the database does not answer.
    """
    unused = {
        name: session
        for name, session in garbage.unused_session_sizes(store, scope).items()
        if run_of(name) is not None
    }
    if not unused:
        return []  # without a query to the database: the scheduler calls this twice a minute
    if search is None:
        search = OrphanSearch(None)
    with database_session(own=True) as database:
        decisions, records = judge_sessions(unused, rules, only_known_dags=only_known_dags, database=database)
        verdicts: dict[str, Verdict] = {}
        ended: dict[str, Run] = {}
        for session, decision in sorted(decisions.items()):
            run, size = run_of(session), unused[session]
            assert run is not None
            record = records.get(run)
            verdicts[session] = Verdict(
                session, decision, size.objects, size.nbytes, None, "", run, record, size.last_used
            )
            has_ended = record is not None and record.state in ENDED and record.ended_for >= ORPHAN_SECONDS
            if has_ended and not decision.remove:
                ended[session] = run
        orphans = [
            replace(
                verdicts[session],
                decision=Decision(True, NO_XCOM),
                objects=1,
                nbytes=orphan.nbytes,
                object=orphan.id,
                name=orphan.names[0],
            )
            for session, orphan in search.find(store, scope, ended, database)
        ]
    return [*verdicts.values(), *orphans]


def remove(store: Store, scope: str, verdicts: Iterable[Verdict]) -> tuple[list[Verdict], list[str]]:
    """Remove what is no longer needed.

    Args:
        store: any session of the store.
        scope: of the installation.
        verdicts: of :func:`find`.

    Returns:
        What was removed, and for the rest of it, why not.

    Raises:
        EntrepotError: the store does not answer.
        SQLAlchemyError: the database does not answer.
    """
    removed: list[Verdict] = []
    problems: list[str] = []
    for verdict in verdicts:
        if not verdict.decision.remove:
            continue
        with database_session(own=True) as database:
            reason = _changed(verdict, database) or _remove(store, scope, verdict)
        if reason:
            problems.append(f"{verdict.name or verdict.session} was not removed: {reason}")
        else:
            removed.append(verdict)
    return removed, problems


def _changed(verdict: Verdict, database: Session) -> str:
    """Why a verdict no longer holds; empty: it does, until the database session ends."""
    current = lock_run(verdict.run, database)
    if verdict.record is None:
        return "" if current is None else "its DAG run exists again"
    if current is None:
        return "its DAG run is being changed, or was deleted meanwhile"
    return "" if current == (verdict.record.state, verdict.record.clear_number) else "its DAG run was cleared meanwhile"


def _remove(store: Store, scope: str, verdict: Verdict) -> str:
    if verdict.object is None:
        return garbage.remove_session(store, scope, verdict.session, verdict.last_used)
    if garbage.unused_sessions(store, scope).get(verdict.session) != verdict.last_used:
        return "it has been used in the meantime"
    store.delete(verdict.object)
    return ""
