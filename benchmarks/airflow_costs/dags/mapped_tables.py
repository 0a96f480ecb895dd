"""DAGs whose last task reads the tables of a mapped task in order, and measures that: ``FLIGHTS_DAGS`` names them."""

from __future__ import annotations

import os
import time
from typing import Any

from airflow.sdk import dag, get_current_context, task

ROWS = 10_000


def make_dag(dag_id: str) -> object:
    """The DAG under a name; its run's configuration has the number of tables."""

    @dag(dag_id=dag_id, schedule=None, catchup=False, default_args={"retries": 0})
    def mapped_tables() -> None:
        @task
        def indexes() -> list[int]:
            context: Any = get_current_context()
            return list(range(context["dag_run"].conf["tables"]))

        @task
        def table(index: int) -> Any:
            import numpy as np
            import pandas as pd

            return pd.DataFrame({"first": np.full(ROWS, index), "second": np.arange(ROWS)})

        @task
        def read(tables: Any) -> dict[str, Any]:
            import pandas as pd  # noqa: F401  # as in a task that computes something; its import is not what is measured

            begin = time.perf_counter()
            total = sum(int(frame["first"].iloc[-1]) for frame in tables)
            return {"seconds": time.perf_counter() - begin, "total": total}

        read(table.expand(index=indexes()))

    return mapped_tables()


for name in os.environ.get("FLIGHTS_DAGS", "mapped_tables").split(","):
    globals()[name] = make_dag(name)
