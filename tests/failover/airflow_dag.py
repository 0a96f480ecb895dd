"""The fault pipeline as a DAG, and the DAG file of each case."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

# A DAG file sets its case's environment, because one Airflow runs the tasks of all cases. Airflow imports the file in
# each task's process before it reads anything else of the task.
FILE = """
import os, sys

os.environ.update({environment})
sys.path.insert(0, {folder!r})
from airflow_dag import build

dag = build({dag_id!r})
"""


def write_file(folder: Path, dag_id: str, environment: Mapping[str, str]) -> None:
    """Write a case's DAG file.

    Args:
        folder: Airflow's DAG directory.
        dag_id: ID of the case's DAG.
        environment: environment variables of its tasks.
    """
    here = str(Path(__file__).resolve().parent)
    # JSON of strings is valid Python too.
    text = FILE.format(environment=json.dumps(dict(environment)), folder=here, dag_id=dag_id)
    (folder / f"{dag_id}.py").write_text(text)


def build(dag_id: str) -> Any:
    """Return the DAG."""
    import pendulum
    from airflow.sdk import DAG, task

    work: Any = import_module("pipeline")  # its functions take arrays; here they get references to task outputs
    with DAG(dag_id, schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC")) as dag:
        made = task(task_id="numbers")(work.numbers)()
        left = task(task_id="left")(work.left)(made)
        right = task(task_id="right")(work.right)(made)
        strike = task(task_id="strike")(work.strike)()
        joined = task(task_id="join")(work.join)(left, right)
        [left, right] >> strike >> joined  # pyright: ignore[reportOperatorIssue, reportUnusedExpression]
        task(task_id="report")(work.report)(joined)
    return dag
