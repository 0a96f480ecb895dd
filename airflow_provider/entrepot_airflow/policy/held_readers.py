"""Readers whose attempt ends as a reschedule, held until the scheduler may run them again; part of the rerun service.

requested --held--> its attempt ends: up_for_reschedule --(what it waits for is over)--> released, as a new attempt
                       `--ends otherwise--> forgotten

A second attempt with the number of the first would be indistinguishable from it to Airflow: if the end of the first
reaches the scheduler while the second runs, it is taken for the death of the second. So the next attempt gets the next
number, and one more is allowed, so that no retry is used up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from entrepot_airflow.policy.rerun_messages import HELD_KEY, VERSION, Instance, format_instances, post_message

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

log = logging.getLogger(__name__)


def hold_reader(row: Any, after: Iterable[Instance], session: Session) -> None:
    """Record that a reader must be released when its attempt has ended.

    Args:
        row: the reader's request in the database.
        after: task instances of its run that must have finished before it runs again.
        session: database session.
    """
    post_message(row, HELD_KEY, {"v": VERSION, "after": [list(instance) for instance in after]}, session)


def release_readers(session: Session) -> int:
    """Release the readers whose attempts have ended and that have nothing left to wait for; return how many.

    Args:
        session: database session.

    Raises:
        SQLAlchemyError: the database does not answer; they stay as they are.
    """
    from airflow.models.xcom import XComModel
    from airflow.utils.sqlalchemy import with_row_locks
    from airflow.utils.state import TaskInstanceState
    from sqlalchemy import select

    query = select(XComModel).where(XComModel.key == HELD_KEY)
    released = 0
    for row in session.scalars(with_row_locks(query, session, of=XComModel, skip_locked=True)).all():
        ti = _reader(row, session)
        if ti is not None and ti.state in (TaskInstanceState.RUNNING, TaskInstanceState.RESTARTING):
            continue  # about to end
        if ti is not None and ti.state == TaskInstanceState.UP_FOR_RESCHEDULE:
            if _must_wait(row, session):
                continue
            _start_next_attempt(ti, session)
            log.info(
                "Entrepot: released %s/%s in run %s",
                ti.dag_id,
                format_instances([(ti.task_id, ti.map_index)]),
                ti.run_id,
            )
            released += 1
        session.delete(row)
    return released


def _reader(row: Any, session: Session) -> Any:
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.sqlalchemy import with_row_locks
    from sqlalchemy import select

    query = select(TaskInstance).where(
        TaskInstance.dag_id == row.dag_id,
        TaskInstance.run_id == row.run_id,
        TaskInstance.task_id == row.task_id,
        TaskInstance.map_index == row.map_index,
    )
    return session.scalar(with_row_locks(query, session, of=TaskInstance))


def _must_wait(row: Any, session: Session) -> bool:
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.state import State
    from sqlalchemy import select

    after = {(str(task_id), int(index)) for task_id, index in row.value["after"]}
    if not after:
        return False
    query = select(TaskInstance.task_id, TaskInstance.map_index, TaskInstance.state).where(
        TaskInstance.dag_id == row.dag_id,
        TaskInstance.run_id == row.run_id,
        TaskInstance.task_id.in_({task_id for task_id, _ in after}),
    )
    return any(
        (task_id, index) in after and state not in State.finished for task_id, index, state in session.execute(query)
    )


def _start_next_attempt(ti: Any, session: Session) -> None:
    """Start a new attempt with the same number of retries left, as clearing the task would."""
    from airflow.models.taskinstancehistory import TaskInstanceHistory
    from sqlalchemy import update

    previous_id, state = ti.id, ti.state
    ti.prepare_db_for_next_try(session)
    session.flush()
    history = update(TaskInstanceHistory).where(TaskInstanceHistory.task_instance_id == previous_id)
    session.execute(history.values(state=state))  # Airflow writes "failed" there, but nothing failed
    ti.state = None  # the scheduler assigns it the next number
    ti.max_tries += 1
    session.merge(ti)
