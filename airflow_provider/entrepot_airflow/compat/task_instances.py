"""Task instances in Airflow's database: reading them, clearing them, and releasing those that were rescheduled."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Instance = tuple[str, int]  # task ID and map index, within a run


def find_instances(dag_id: str, run_id: str, task_ids: Collection[str], session: Session) -> dict[Instance, Any]:
    """Return the task instances of some tasks of a run.

    Args:
        dag_id, run_id: the run.
        task_ids: IDs of the tasks.
        session: database session.

    Raises:
        SQLAlchemyError: the database does not answer; so do all functions of this module.
    """
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import select

    query = select(TaskInstance).where(
        TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id, TaskInstance.task_id.in_(task_ids)
    )
    return {(ti.task_id, ti.map_index): ti for ti in session.scalars(query).all()}


def instance_states(
    dag_id: str, run_id: str, task_ids: Collection[str], session: Session
) -> Sequence[tuple[Instance, Any]]:
    """Return the states of the task instances of some tasks of a run, without loading the instances."""
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import select

    query = select(TaskInstance.task_id, TaskInstance.map_index, TaskInstance.state).where(
        TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id, TaskInstance.task_id.in_(task_ids)
    )
    return [((task_id, index), state) for task_id, index, state in session.execute(query)]


def lock_instance_of(row: Any, session: Session) -> Any:
    """Return the task instance that an XCom belongs to, locked until the session ends; None: it does not exist.

    Args:
        row: the XCom, from :func:`entrepot_airflow.compat.database.lock_xcoms`.
        session: database session.
    """
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


def is_finished(state: Any) -> bool:
    """Return whether a task instance in this state has finished, whatever its outcome."""
    from airflow.utils.state import State

    return state in State.finished


def is_running(state: Any) -> bool:
    """Return whether a task instance in this state has a process."""
    from airflow.utils.state import TaskInstanceState

    return state in (TaskInstanceState.RUNNING, TaskInstanceState.RESTARTING)


def is_rescheduled(state: Any) -> bool:
    """Return whether a task instance's last attempt ended as a reschedule."""
    from airflow.utils.state import TaskInstanceState

    return bool(state == TaskInstanceState.UP_FOR_RESCHEDULE)


def clear_instances(instances: Sequence[Any], session: Session, *, event: str, owner: str, extra: str) -> None:
    """Clear exactly these task instances, leaving those up- and downstream as they are, and log it for Airflow's audit.

    Args:
        instances: finished task instances, from :func:`find_instances`.
        session: database session.
        event, owner, extra: what the audit log says: the event, who did it, and why.
    """
    from airflow.models.log import Log
    from airflow.models.taskinstance import clear_task_instances

    for ti in instances:
        identity: Mapping[str, Any] = {
            "dag_id": ti.dag_id,
            "run_id": ti.run_id,
            "task_id": ti.task_id,
            "map_index": ti.map_index,
        }
        session.add(Log(event, owner=owner, extra=extra, try_number=ti.try_number, **identity))
    clear_task_instances(list(instances), session)


def start_next_attempt(ti: Any, session: Session) -> None:
    """Start a new attempt of a rescheduled task instance with the same number of retries left, as clearing would.

    Args:
        ti: the task instance, from :func:`lock_instance_of`.
        session: database session.
    """
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
