"""A table goes to a file and back, and into a checkpoint and back, without code of one's own."""

from __future__ import annotations

import tempfile
from typing import Any

import pandas as pd
import pendulum
from airflow.sdk import dag, task
from airflow.sdk.bases.operator import chain
from entrepot_airflow.operators.entrepot import (
    EntrepotCheckpointOperator,
    EntrepotEvictOperator,
    EntrepotExportOperator,
    EntrepotImportOperator,
    EntrepotRestoreOperator,
)

FOLDER = f"{tempfile.gettempdir()}/entrepot-example"  # or s3://bucket/folder


@dag(schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC"))
def example_operators() -> None:
    @task
    def load() -> Any:
        return pd.DataFrame({"amount": [10, 20, 30, 40]})

    @task
    def total(table: Any) -> int:
        return int(table.to_pandas()["amount"].sum())

    written = EntrepotExportOperator(task_id="write", from_task="load", url=f"{FOLDER}/{{{{ run_id }}}}.parquet")
    read: Any = EntrepotImportOperator(task_id="read", url=f"{FOLDER}/{{{{ run_id }}}}.parquet", name="again")
    saved = EntrepotCheckpointOperator(task_id="save", from_task="load", url=f"{FOLDER}/{{{{ run_id }}}}")
    # To a session of its own, which outlives this run's.
    restored = EntrepotRestoreOperator(task_id="restore", url=f"{FOLDER}/{{{{ run_id }}}}", session="example_restored")
    moved = EntrepotEvictOperator(task_id="move_to_disk", from_task="load")  # whoever reads it next loads it again
    chain(load(), written, read, total(read.output))
    chain(written, saved, restored, moved)


example_operators()
