"""Readers whose attempt ends as a reschedule, held until the scheduler may run them again; part of the rerun service.

requested --held--> its attempt ends: up_for_reschedule --(what it waits for is over)--> released, as a new attempt
                       `--ends otherwise--> forgotten

A second attempt with the number of the first would be indistinguishable from it to Airflow: if the end of the first
reaches the scheduler while the second runs, it is taken for the death of the second. So the next attempt gets the next
number, and one more is allowed, so that no retry is used up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from entrepot_io.plain_log import plain_logger

from entrepot_airflow.compat import task_instances
from entrepot_airflow.compat.database import lock_xcoms, write_xcom
from entrepot_airflow.policy.rerun_messages import HELD_KEY, VERSION, Instance, format_instances

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

log = plain_logger(__name__)


def hold_reader(row: Any, after: Iterable[Instance], session: Session) -> None:
    """Record that a reader must be released when its attempt has ended.

    Args:
        row: the reader's request in the database.
        after: task instances of its run that must have finished before it runs again.
        session: database session.
    """
    write_xcom(row, HELD_KEY, {"v": VERSION, "after": [list(instance) for instance in after]}, session)


def release_readers(session: Session) -> int:
    """Release the readers whose attempts have ended and that have nothing left to wait for; return how many.

    Args:
        session: database session.

    Raises:
        SQLAlchemyError: the database does not answer; they stay as they are.
    """
    released = 0
    for row in lock_xcoms(HELD_KEY, session):
        ti = task_instances.lock_instance_of(row, session)
        if ti is not None and task_instances.is_running(ti.state):
            continue  # about to end
        if ti is not None and task_instances.is_rescheduled(ti.state):
            if _must_wait(row, session):
                continue
            task_instances.start_next_attempt(ti, session)
            log.info(
                "Entrepot: released %s/%s in run %s",
                ti.dag_id,
                format_instances([(ti.task_id, ti.map_index)]),
                ti.run_id,
            )
            released += 1
        session.delete(row)
    return released


def _must_wait(row: Any, session: Session) -> bool:
    after = {(str(task_id), int(index)) for task_id, index in row.value["after"]}
    if not after:
        return False
    states = task_instances.instance_states(row.dag_id, row.run_id, {task_id for task_id, _ in after}, session)
    return any(instance in after and not task_instances.is_finished(state) for instance, state in states)
