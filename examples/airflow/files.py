"""Objects as files: written as Airflow writes to any object storage, and read by libraries that know only files."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pendulum
from airflow.sdk import ObjectStoragePath, dag, task


@dag(schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC"))
def example_files() -> None:
    @task
    def write() -> str:
        path = ObjectStoragePath("entrepot://current/reports/orders.csv")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("amount\n10\n20\n")
        return str(path)

    @task
    def total(path: Any) -> int:
        return int(pd.read_csv(path)["amount"].sum())

    total(write())


example_files()
