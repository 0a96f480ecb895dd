"""The hand-off as an Airflow DAG, one for each transport: ``FLIGHTS_DAGS`` names them, as in the flights example."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from airflow.sdk import dag, task

from benchmarks.table_handoff import tasks


def as_task(function: Callable[..., Any]) -> Any:
    """A function as a task that passes on a single value."""
    return task(multiple_outputs=False)(function)


def make_dag(dag_id: str) -> object:
    """The DAG under a name."""

    @dag(
        dag_id=dag_id,
        schedule=None,
        catchup=False,
        params={"mib": 1},
        render_template_as_native_obj=True,
        default_args={"retries": 0},
    )
    def handoff() -> None:
        as_task(tasks.report)(as_task(tasks.replace)(as_task(tasks.make)("{{ params.mib }}")))

    return handoff()


for name in os.environ.get("FLIGHTS_DAGS", "handoff").split(","):
    globals()[name] = make_dag(name)
