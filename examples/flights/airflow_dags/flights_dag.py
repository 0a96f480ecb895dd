"""The job as an Airflow DAG. Nothing here knows how values get from task to task; ``[core] xcom_backend`` does.

The demo runs two transports in one Airflow, so it asks for one DAG of each (``FLIGHTS_DAGS``, names with commas
between); without it there is one DAG, ``flights``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from airflow.sdk import dag, task

from examples.flights import job


def as_task(function: Callable[..., Any]) -> Any:
    """A function as a task that hands on one value; a dictionary would otherwise go entry by entry."""
    return task(multiple_outputs=False)(function)


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
