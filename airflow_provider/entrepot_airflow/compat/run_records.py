"""DAG runs in Airflow's database: which have ended, and which others still need their values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

BATCH_SIZE = 200  # rows named by one query
QUEUE_SLACK = timedelta(minutes=1)  # an asset's event is written before the queue's row that it causes

Run = tuple[str, str]  # DAG and run ID


def ended_records(runs: Collection[Run], session: Session) -> dict[Run, tuple[str, float, int]]:
    """Return state, seconds since the end (0: unknown), and number of clearings, of those runs that exist.

    Args:
        runs: DAG and run IDs.
        session: database session.

    Raises:
        SQLAlchemyError: the database does not answer; so do all functions of this module.
    """
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    now = datetime.now(timezone.utc)
    records: dict[Run, tuple[str, float, int]] = {}
    for ids in _batches({run_id for _, run_id in runs}):
        query = select(DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.end_date, DagRun.clear_number).where(
            DagRun.run_id.in_(ids)
        )
        for dag_id, run_id, state, end, cleared in session.execute(query):
            if (dag_id, run_id) in runs:
                age = 0.0 if end is None else max(0.0, (now - end).total_seconds())
                records[dag_id, run_id] = (str(state), age, int(cleared or 0))
    return records


def lock_run(run: Run, session: Session) -> tuple[str, int] | None:
    """Return state and number of clearings of a run, locked against clearing until the session ends.

    Returns:
        None: it does not exist, or another process has locked it.
    """
    from airflow.models.dagrun import DagRun
    from airflow.utils.sqlalchemy import with_row_locks
    from sqlalchemy import select

    query = select(DagRun).where(DagRun.dag_id == run[0], DagRun.run_id == run[1])
    row = session.scalar(with_row_locks(query, session, of=DagRun, skip_locked=True))
    return None if row is None else (str(row.state), int(row.clear_number or 0))


def newest_runs(dag_ids: Collection[str], count: int, session: Session) -> set[Run]:
    """Return the newest successful and the newest failed runs of each of these DAGs, ``count`` of each."""
    from airflow.models.dagrun import DagRun
    from sqlalchemy import func, select

    newest: set[Run] = set()
    for ids in _batches(dag_ids):
        rank = func.row_number().over(
            partition_by=(DagRun.dag_id, DagRun.state), order_by=(DagRun.run_after.desc(), DagRun.id.desc())
        )
        ranked = (
            select(DagRun.dag_id, DagRun.run_id, rank.label("rank"))
            .where(DagRun.dag_id.in_(ids), DagRun.state.in_(("success", "failed")))
            .subquery()
        )
        query = select(ranked.c.dag_id, ranked.c.run_id).where(ranked.c.rank <= count)
        newest.update((dag_id, run_id) for dag_id, run_id in session.execute(query))
    return newest


def asset_consumers(runs: Collection[Run], session: Session) -> dict[Run, str]:
    """Return those runs whose assets have caused a run that has not ended, or are to cause one, with that as text."""
    from airflow.models.asset import AssetDagRunQueue, AssetEvent
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select

    needed: dict[Run, str] = {}
    for ids in _batches({run_id for _, run_id in runs}):
        of_runs = AssetEvent.source_run_id.in_(ids)
        consumers = (
            select(AssetEvent.source_dag_id, AssetEvent.source_run_id, DagRun.dag_id, DagRun.run_id)
            .join(AssetEvent.created_dagruns)
            .where(of_runs, DagRun.state.in_(("queued", "running")))
        )
        for dag_id, run_id, reader, reading_run in session.execute(consumers):
            if dag_id is not None and run_id is not None:
                needed[dag_id, run_id] = f"its assets started {reader}/{reading_run}, which has not ended"
        queued = (
            select(
                AssetEvent.source_dag_id,
                AssetEvent.source_run_id,
                AssetEvent.timestamp,
                AssetDagRunQueue.created_at,
                AssetDagRunQueue.target_dag_id,
            )
            .join(AssetDagRunQueue, AssetDagRunQueue.asset_id == AssetEvent.asset_id)
            .where(of_runs)
        )
        for dag_id, run_id, written, created, reader in session.execute(queued):
            if dag_id is not None and run_id is not None and written >= created - QUEUE_SLACK:
                needed.setdefault((dag_id, run_id), f"its assets are to start a run of {reader}")
    return {run: why for run, why in needed.items() if run in runs}


def foreign_references(sessions: Collection[str], session: Session) -> Iterator[tuple[str, Run, str]]:
    """Yield the XComs whose value is a reference into one of these sessions: the session, the XCom's run, its task.

    Reads the table of XComs as a whole; the caller drops those of the session's own run.
    """
    from airflow.models.xcom import XComModel
    from sqlalchemy import select

    for names in _batches(sessions):
        name = XComModel.value["session"].as_string()
        query = select(name, XComModel.dag_id, XComModel.run_id, XComModel.task_id).where(name.in_(names))
        for referred, dag_id, run_id, task_id in session.execute(query):
            yield referred, (dag_id, run_id), task_id


def referenced_ids(run: Run, session: Session) -> set[str]:
    """Return the IDs of the objects that a run's XComs refer to."""
    from airflow.models.xcom import XComModel
    from sqlalchemy import select

    name = XComModel.value["id"].as_string()
    query = select(name).where(XComModel.dag_id == run[0], XComModel.run_id == run[1])
    return {value for value in session.scalars(query) if value}


def _batches(values: Collection[Any]) -> Iterator[Sequence[Any]]:
    ordered = sorted(values)
    for begin in range(0, len(ordered), BATCH_SIZE):
        yield ordered[begin : begin + BATCH_SIZE]
