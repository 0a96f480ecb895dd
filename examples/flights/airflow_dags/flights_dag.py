"""The job as an Airflow DAG. It does not know how values are passed between tasks; ``[core] xcom_backend`` decides.

The demo runs two transports in one Airflow, so it requests one DAG for each (``FLIGHTS_DAGS``, comma-separated names);
by default there is one DAG, ``flights``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from airflow.sdk import dag, task

from examples.flights import job


def as_task(task_function: Callable[..., Any]) -> Any:
    """A function as a task that passes on a single value; by default, a dictionary would be split into its entries."""
    return task(multiple_outputs=False)(task_function)


def make_dag(dag_id: str) -> object:
    """The DAG under a name."""

    @dag(
        dag_id=dag_id,
        schedule=None,
        catchup=False,
        params={"scale": 1, "rows": None},
        render_template_as_native_obj=True,
        default_args={"retries": 0},
    )
    def flights() -> None:
        tables = as_task(job.load)("{{ params.scale }}", "{{ params.rows }}")
        joined = as_task(job.join)(tables)
        featured = as_task(job.features)(joined)
        model = as_task(job.train)(featured)
        scored = as_task(job.score)(model, featured)
        as_task(job.report)(joined, scored)

    return flights()


for name in os.environ.get("FLIGHTS_DAGS", "flights").split(","):
    globals()[name] = make_dag(name)
