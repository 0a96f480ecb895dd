"""The fault pipeline and other DAGs of these tests, and the DAG file of each case."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

# A DAG file sets its case's environment, because one Airflow runs the tasks of all cases. Airflow imports the file in
# each task's process before it reads anything else of the task.
DAG_FILE_TEMPLATE = """
import os, sys

os.environ.update({environment})
sys.path.insert(0, {folder!r})
import airflow_dag

dag = airflow_dag.{builder}({dag_id!r})
"""


def write_file(folder: Path, dag_id: str, environment: Mapping[str, str], *, builder: str = "build") -> None:
    """Write a case's DAG file.

    Args:
        folder: Airflow's DAG directory.
        dag_id: ID of the case's DAG.
        environment: environment variables of its tasks.
        builder: the function of this module that returns the DAG.
    """
    test_folder = str(Path(__file__).resolve().parent)
    # JSON of strings is valid Python too.
    text = DAG_FILE_TEMPLATE.format(
        environment=json.dumps(dict(environment)), folder=test_folder, dag_id=dag_id, builder=builder
    )
    (folder / f"{dag_id}.py").write_text(text)


def build(dag_id: str) -> Any:
    """Return the DAG."""
    import pendulum
    from airflow.sdk import DAG, task

    pipeline_module: Any = import_module(
        "pipeline"
    )  # its functions take arrays; here they get references to task outputs
    with DAG(dag_id, schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC")) as dag:
        numbers = task(task_id="numbers")(pipeline_module.numbers)()
        left = task(task_id="left")(pipeline_module.left)(numbers)
        right = task(task_id="right")(pipeline_module.right)(numbers)
        strike = task(task_id="strike")(pipeline_module.strike)()
        joined = task(task_id="join")(pipeline_module.join)(left, right)
        [left, right] >> strike >> joined  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]
        task(task_id="report")(pipeline_module.report)(joined)
    return dag


def build_daily(dag_id: str) -> Any:
    """Return a DAG of three days that have passed, so that only a backfill runs it."""
    import numpy as np
    import pendulum
    from airflow.sdk import DAG, get_current_context, task

    first, last = (pendulum.datetime(2026, 1, day, tz="UTC") for day in (1, 3))
    with DAG(dag_id, schedule="@daily", start_date=first, end_date=last, catchup=False) as dag:

        @task
        def day() -> Any:
            context: Any = get_current_context()
            return np.full(5000, context["logical_date"].day)

        @task
        def total(values: Any) -> int:
            return int(values.sum())

        total(day())
    return dag


def build_fan_out(dag_id: str) -> Any:
    """Return a DAG that is mapped over ``count`` of its run's configuration; each value has the run's own ``first``."""
    import numpy as np
    import pendulum
    from airflow.sdk import DAG, get_current_context, task

    with DAG(dag_id, schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC")) as dag:

        @task
        def indexes() -> list[int]:
            context: Any = get_current_context()
            conf = context["dag_run"].conf
            return [conf["first"] + index for index in range(conf["count"])]

        @task
        def grow(index: int) -> Any:
            return np.full(5000, index)

        @task
        def gather(parts: Any) -> list[int]:
            return [int(part.sum()) // 5000 for part in parts]

        gather(grow.expand(index=indexes()))
    return dag


def build_other_host(dag_id: str) -> Any:
    """Return a DAG whose second task reads the first one's value on another host."""
    import numpy as np
    import pendulum
    from airflow.sdk import DAG, task

    with DAG(dag_id, schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC")) as dag:

        @task
        def make() -> Any:
            return np.arange(5000)

        @task(queue="elsewhere")
        def read(values: Any) -> int:
            return len(values)

        @task(queue="elsewhere")
        def make_there() -> Any:
            return np.arange(4000)

        @task(queue="elsewhere")
        def read_there(values: Any) -> int:
            return len(values)

        read(make())
        read_there(make_there())
    return dag
