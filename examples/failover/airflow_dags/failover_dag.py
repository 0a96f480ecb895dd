"""The Airflow DAG of the demo. The policy is in force because ENTREPOT_POLICY is set where Airflow runs."""

from __future__ import annotations

from examples.failover.airflow_job import make_dag

failover = make_dag("failover")
