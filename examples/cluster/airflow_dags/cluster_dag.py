"""The job as Airflow DAGs, one for each transport. Nothing in them says that there is more than one host."""

from __future__ import annotations

import os

from examples.failover.airflow_job import make_dag

for name in os.environ.get("CLUSTER_DAGS", "cluster").split(","):
    globals()[name] = make_dag(name)
