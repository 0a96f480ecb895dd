"""Airflow's database, for processes that have access to it: the scheduler, and ``entrepot gc`` on its host."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

BATCH_SIZE = 200  # rows named by one query
DAG_CACHE_SECONDS = 60.0

_lock = threading.Lock()
_cached_bag: tuple[float, Any] | None = None  # guarded by _lock; (time of creation, bag)


@contextmanager
def database_session(*, own: bool = False) -> Iterator[Session]:
    """Open a session of the database; commit it at the end of the block, or roll it back after an error.

    Args:
        own: not the thread's scoped session, which may belong to the scheduler and would be committed and closed.
    """
    from airflow.utils.session import create_session

    with create_session(scoped=not own) as session:
        yield session


def run_states(runs: Sequence[tuple[str, str]], session: Session) -> dict[tuple[str, str], Any]:
    """Return the states of those runs that exist.

    Args:
        runs: DAG and run IDs.
        session: database session.

    Raises:
        SQLAlchemyError: the database does not answer; so do all functions of this module.
    """
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    requested = set(runs)
    states: dict[tuple[str, str], Any] = {}
    for begin in range(0, len(runs), BATCH_SIZE):
        ids = [run_id for _, run_id in runs[begin : begin + BATCH_SIZE]]
        query = select(DagRun.dag_id, DagRun.run_id, DagRun.state).where(DagRun.run_id.in_(ids))
        states.update({(dag, run): state for dag, run, state in session.execute(query) if (dag, run) in requested})
    return states


def existing_dags(dag_ids: Collection[str], session: Session) -> set[str]:
    """Return those DAGs that the database knows."""
    from airflow.models.dag import DagModel
    from sqlalchemy import select

    existing: set[str] = set()
    ordered_ids = sorted(dag_ids)
    for begin in range(0, len(ordered_ids), BATCH_SIZE):
        query = select(DagModel.dag_id).where(DagModel.dag_id.in_(ordered_ids[begin : begin + BATCH_SIZE]))
        existing.update(session.scalars(query))
    return existing


def lock_xcoms(key: str, session: Session, *, limit: int | None = None) -> Sequence[Any]:
    """Return the XComs with a key, locked until the session ends; those that another process has locked are skipped.

    Args:
        key: the key.
        session: database session.
        limit: maximum number of XComs; None: all.

    Returns:
        Rows with ``dag_id``, ``run_id``, ``task_id``, ``map_index`` and ``value``, which ``session.delete`` deletes.
    """
    from airflow.models.xcom import XComModel
    from airflow.utils.sqlalchemy import with_row_locks
    from sqlalchemy import select

    query = select(XComModel).where(XComModel.key == key).limit(limit)
    return session.scalars(with_row_locks(query, session, of=XComModel, skip_locked=True)).all()


def write_xcom(row: Any, key: str, value: Any, session: Session) -> None:
    """Write an XCom of the task instance that another XCom belongs to, bypassing the XCom backend.

    Args:
        row: the other XCom, from :func:`lock_xcoms`.
        key: key of the XCom.
        value: its value.
        session: database session.
    """
    from airflow.models.xcom import XComModel

    XComModel.set(
        key,
        value,
        dag_id=row.dag_id,
        task_id=row.task_id,
        run_id=row.run_id,
        map_index=row.map_index,
        serialize=False,
        session=session,
    )


def xcoms_of_tasks(
    dag_id: str, run_id: str, tasks: Iterable[str], session: Session, *, limit: int
) -> Sequence[tuple[str, int, str, Any]]:
    """Return the XComs of some tasks of a run: task ID, map index, key and stored value, ascending.

    Args:
        dag_id, run_id: the run.
        tasks: IDs of the tasks.
        session: database session.
        limit: maximum number of XComs.
    """
    from airflow.models.xcom import XComModel
    from sqlalchemy import select

    query = (
        select(XComModel.task_id, XComModel.map_index, XComModel.key, XComModel.value)
        .where(XComModel.dag_id == dag_id, XComModel.run_id == run_id, XComModel.task_id.in_(list(tasks)))
        .order_by(XComModel.task_id, XComModel.map_index, XComModel.key)
        .limit(limit)
    )
    return [(task_id, index, key, value) for task_id, index, key, value in session.execute(query).all()]


def serialized_task(dag_id: str, task_id: str, run_id: str, session: Session) -> Any:
    """Return a task of the DAG as a run executes it, from the serialized DAG; None: run or task does not exist."""
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    run = session.scalar(select(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))
    dag = None if run is None else _dag_bag().get_dag_for_run(run, session=session)
    return None if dag is None or not dag.has_task(task_id) else dag.get_task(task_id)


def _dag_bag() -> Any:
    """Return Airflow's cache of serialized DAGs, as reading one is slow; recreated at times, since it never shrinks."""
    from airflow.models.dagbag import DBDagBag

    global _cached_bag
    now = time.monotonic()
    with _lock:
        if _cached_bag is None or now - _cached_bag[0] > DAG_CACHE_SECONDS:
            _cached_bag = (now, DBDagBag(load_op_links=False))
        return _cached_bag[1]


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
