"""The job as an Airflow DAG under a given name, with a journal and retries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from airflow.sdk import dag, task

from examples.failover import tasks


def as_task(task_function: Callable[..., Any]) -> Any:
    """A function as a task that passes on a single value; by default, a dictionary would be split into its entries."""
    return task(multiple_outputs=False)(task_function)


def make_dag(dag_id: str) -> object:
    """The DAG."""

    @dag(
        dag_id=dag_id,
        schedule=None,
        catchup=False,
        params={"scale": 1, "rows": None},
        render_template_as_native_obj=True,
        default_args={"retries": 2, "retry_delay": timedelta(seconds=1)},
    )
    def journaled_flights() -> None:
        tables = as_task(tasks.load)("{{ params.scale }}", "{{ params.rows }}")
        joined = as_task(tasks.join)(tables)
        featured = as_task(tasks.features)(joined)
        model = as_task(tasks.train)(featured)
        scored = as_task(tasks.score)(model, featured)
        as_task(tasks.report)(joined, scored)

    return journaled_flights()
