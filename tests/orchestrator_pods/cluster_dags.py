"""A DAG whose tasks leave their values in the stores of different nodes, and the pods that read them in a cluster."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG, task
from entrepot_airflow import DataLocalityCallback
from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.credentials import find
from entrepot_operator.kubernetes.locations import read_cluster_locations

AIRFLOW_HOME = Path(os.environ["AIRFLOW_HOME"])
STORES: dict[str, str] = json.loads(os.environ["STORES"])  # addresses by node
NAMESPACE = os.environ["NAMESPACE"]  # the pods' namespace
STORE_NAMESPACE = os.environ["PUBLISHED"]  # the namespace that the stores publish in
PUBLISH_TIMEOUT_SECONDS = 60.0
# Program of a pod: read the value that task "west" returned, from the store of the pod's own node.
READ_PROGRAM = """
import json, pathlib, sys
from entrepot_io.reference import Reference
from entrepot_io.values import get_value
kept = json.loads(pathlib.Path(sys.argv[1]).read_text())["west[-1]"]
print(len(get_value(Reference.parse(kept))), "bytes")
"""


def value_on(node: str, count: int) -> Any:
    """A value sealed by the store of the given node, as if the task ran there."""
    os.environ["ENTREPOT_ADDRESS"] = STORES[node]
    return np.ones(count, dtype=np.uint8)


def entries() -> dict[str, Any]:
    from pod_dags import entries as all_entries

    return {name: value for name, value in all_entries("spread").items() if isinstance(value, dict)}


with DAG("spread", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)) as spread:

    @task
    def east() -> Any:
        return value_on("flow-east", 3_000_000)

    @task
    def west() -> Any:
        return value_on("flow-west", 2_000_000)

    @task
    def published() -> None:
        """Wait until the cluster knows both values: for a pod created before that, the references would decide."""
        entries_by_task = entries()
        (AIRFLOW_HOME / "entries.json").write_text(json.dumps(entries_by_task))
        api, deadline = Api(find()), time.monotonic() + PUBLISH_TIMEOUT_SECONDS
        while (
            not {entry["id"] for entry in entries_by_task.values()}
            <= read_cluster_locations(api, STORE_NAMESPACE).objects.keys()
        ):
            if time.monotonic() > deadline:
                raise TimeoutError("the values were not published")
            time.sleep(0.05)
        api.close()

    @task
    def both(first: Any, second: Any) -> int:
        return len(first) + len(second)

    @task
    def single(value: Any) -> int:
        return len(value)

    pod = KubernetesPodOperator(
        task_id="pod",
        name="pod",
        namespace=NAMESPACE,
        image="image:1",
        cmds=["python", "-c", READ_PROGRAM],
        arguments=[str(AIRFLOW_HOME / "entries.json")],
        annotations={"entrepot.dev/reads": "west"},
        labels={"from": "operator"},
        config_file=os.environ["KUBECONFIG"],
        in_cluster=False,
        get_logs=False,
        callbacks=DataLocalityCallback,
    )
    east_value, west_value = east(), west()
    published_task = published()
    published_task.set_upstream([east_value, west_value])
    published_task.set_downstream(pod)
    both(east_value, west_value)
    single(west_value)


def main() -> None:
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from pod_dags import executor_pod
    from sqlalchemy import select

    # For these two only the pods are created; where they run is up to the scheduler.
    run: Any = spread.test(mark_success_pattern="^(both|single)$")
    results: dict[str, Any] = {"states": {ti.task_id: str(ti.state) for ti in run.get_task_instances()}, "pods": {}}
    with create_session() as session:
        query = select(TaskInstance).where(
            TaskInstance.dag_id == "spread", TaskInstance.task_id.in_(["both", "single"])
        )
        for ti in session.scalars(query).all():
            ti.task = spread.task_dict[ti.task_id]  # type: ignore[assignment]
            results["pods"][ti.task_id] = executor_pod(ti, 1)
    Path(sys.argv[1]).write_text(json.dumps(results))


if __name__ == "__main__":
    main()
