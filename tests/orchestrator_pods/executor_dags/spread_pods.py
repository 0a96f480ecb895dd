"""A DAG for the KubernetesExecutor: two tasks that leave values on nodes of their own, and tasks that read them."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import numpy as np
from airflow.sdk import DAG, task
from kubernetes.client import V1Pod, V1PodSpec


def only_in(zone: str) -> dict[str, Any]:
    """The option of a task whose pod may only be in this zone."""
    spec = V1PodSpec(containers=[], node_selector={"topology.kubernetes.io/zone": zone})
    return {"pod_override": V1Pod(spec=spec)}


with DAG("spread_pods", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)) as spread_pods:

    @task(executor_config=only_in("east"))
    def east() -> Any:
        return np.ones(3_000_000, dtype=np.uint8)

    @task(executor_config=only_in("west"))
    def west() -> Any:
        return np.ones(2_000_000, dtype=np.uint8)

    @task
    def halve(value: Any) -> Any:
        return value[: len(value) // 2]

    @task
    def count(value: Any) -> int:
        return len(value)

    @task(executor_config=only_in("west"))
    def count_elsewhere(value: Any) -> int:
        return len(value)

    east_value = east()
    count(halve(west()))
    count.override(task_id="count_east")(east_value)
    count_elsewhere(east_value)
