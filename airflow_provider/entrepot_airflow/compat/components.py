"""Identifies the Airflow component that a listener was called for, by name, because importing the classes is slow."""

from __future__ import annotations

from typing import Any

SCHEDULER_KIND = "SchedulerJob"


def is_job(component: Any) -> bool:
    """Return whether a component is a job: a scheduler, a DAG processor or a triggerer."""
    return type(component).__name__ == "Job"


def is_task_runner(component: Any) -> bool:
    """Return whether a component is a task's own process."""
    return type(component).__name__ == "TaskRunnerMarker"


def job_kind(job: Any) -> str | None:
    """Return a job's kind, such as :data:`SCHEDULER_KIND`; None: it is not set yet.

    Read from ``vars()``, bypassing SQLAlchemy, which might access the database in the wrong thread.
    """
    kind: str | None = vars(job).get("job_type")
    return kind
