"""Requests to the task's supervisor, and ending an attempt as a reschedule."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from airflow.sdk.execution_time.comms import XComResult as XComResult

# Inputs are read while a task's arguments are rendered, and this logger reports any exception there as an error.
_TEMPLATE_LOGGER = logging.getLogger("airflow.sdk.definitions._internal.templater")


def import_backend_lookup() -> None:
    """Import the module in which Airflow looks up its XCom backend, and which the backend's base class imports."""
    import airflow.sdk.execution_time.xcom  # noqa: F401


def read_xcom(ti: Any, task_id: str, map_index: int, key: str) -> Any:
    """Return what Airflow stores for an XCom of the task instance's run; None: nothing.

    Args:
        ti: the task instance of this process.
        task_id, map_index, key: the XCom; map index -1: its task is not mapped.
    """
    from airflow.sdk.execution_time.comms import GetXCom

    request = GetXCom(
        key=key, dag_id=ti.dag_id, run_id=ti.run_id, task_id=task_id, map_index=None if map_index < 0 else map_index
    )
    return getattr(_supervisor().send(request), "value", None)


def read_own_xcom(ti: Any, key: str) -> Any:
    """Return what Airflow stores for an XCom of this task instance; None: nothing."""
    from airflow.sdk.execution_time.comms import GetXCom

    return getattr(_supervisor().send(GetXCom(key=key, **_identity(ti))), "value", None)


def write_own_xcom(ti: Any, key: str, value: Any) -> None:
    """Store an XCom of this task instance as it is, bypassing the XCom backend."""
    from airflow.sdk.execution_time.comms import SetXCom

    _supervisor().send(SetXCom(key=key, value=value, **_identity(ti)))


def delete_own_xcom(ti: Any, key: str) -> None:
    """Delete an XCom of this task instance, bypassing the XCom backend."""
    from airflow.sdk.execution_time.comms import DeleteXCom

    _supervisor().send(DeleteXCom(key=key, **_identity(ti)))


def is_dag_test() -> bool:
    """Return whether this is ``dag.test()``, whose tasks run in its own process."""
    from airflow.sdk.execution_time import task_runner

    return type(getattr(task_runner, "SUPERVISOR_COMMS", None)).__name__ == "InProcessSupervisorComms"


def reschedule_count(ti: Any) -> int:
    """Return how often this task instance was rescheduled before."""
    return int(getattr(getattr(ti, "_ti_context_from_server", None), "task_reschedule_count", 0) or 0)


def reschedule(delay: timedelta) -> NoReturn:
    """End this attempt; the scheduler starts another one after a delay. No retry is used up.

    Raises:
        AirflowRescheduleException: always.
    """
    from airflow.sdk import exceptions

    error: Any = exceptions.AirflowRescheduleException  # untyped
    _TEMPLATE_LOGGER.addFilter(_is_not_reschedule)  # adding the same function again has no effect
    raise error(datetime.now(timezone.utc) + delay)


def _is_not_reschedule(record: logging.LogRecord) -> bool:
    """Log filter that drops records about a reschedule."""
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    return type(error).__name__ != "AirflowRescheduleException"


def _supervisor() -> Any:
    from airflow.sdk.execution_time import task_runner

    return task_runner.SUPERVISOR_COMMS


def _identity(ti: Any) -> dict[str, Any]:
    return {"dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": ti.task_id, "map_index": ti.map_index}
