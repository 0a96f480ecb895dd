"""What the page in the API server takes from Airflow: who may see it, and the XComs and tasks that it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


def may_read_xcoms() -> Callable[..., None]:
    """Return the dependency of a FastAPI route that admits only who may read the XComs of the DAG ``dag_id``."""
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
    from airflow.api_fastapi.core_api.security import requires_access_dag

    return requires_access_dag("GET", DagAccessEntity.XCOM)


def base_path() -> str:
    """Return the path under which the API server is reached, without a slash at its end."""
    from airflow.sdk.configuration import conf

    return urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")


def xcoms_of_instance(
    dag_id: str, run_id: str, task_id: str, map_index: int, session: Session, *, limit: int
) -> Sequence[tuple[str, Any]]:
    """Return key and stored value of the XComs of a task instance.

    Raises:
        SQLAlchemyError: the database does not answer.
    """
    from airflow.models.xcom import XComModel
    from sqlalchemy import select

    query = (
        select(XComModel.key, XComModel.value)
        .where(
            XComModel.dag_id == dag_id,
            XComModel.run_id == run_id,
            XComModel.task_id == task_id,
            XComModel.map_index == map_index,
        )
        .order_by(XComModel.key)
        .limit(limit)
    )
    return [(key, value) for key, value in session.execute(query)]


def downstream_tasks(task: Any) -> list[str]:
    """Return the IDs of the tasks directly downstream of a task of a serialized DAG."""
    return sorted(task.downstream_task_ids)
