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
from entrepot_airflow import FollowData
from entrepot_io.cluster.access import find
from entrepot_io.cluster.api import Api
from entrepot_io.cluster.places import read_cluster

HOME = Path(os.environ["AIRFLOW_HOME"])
STORES: dict[str, str] = json.loads(os.environ["STORES"])  # addresses by node
NAMESPACE = os.environ["NAMESPACE"]  # the pods' namespace
PUBLISHED = os.environ["PUBLISHED"]  # the namespace that the stores publish in
PUBLISHED_SECONDS = 60.0
# Program of a pod: read the value that task "west" returned, from the store of the pod's own node.
READ = """
import json, pathlib, sys
from entrepot_io.reference import Reference
from entrepot_io.handoff import get_value
kept = json.loads(pathlib.Path(sys.argv[1]).read_text())["west[-1]"]
print(len(get_value(Reference.parse(kept))), "bytes")
"""


def on(node: str, count: int) -> Any:
    """A value sealed by the store of the given node, as if the task ran there."""
    os.environ["ENTREPOT_ADDRESS"] = STORES[node]
    return np.ones(count, dtype=np.uint8)


def entries() -> dict[str, Any]:
    from pod_dags import entries as all_entries

    return {name: value for name, value in all_entries("spread").items() if isinstance(value, dict)}


with DAG("spread", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)) as spread:

    @task
    def east() -> Any:
        return on("flow-east", 3_000_000)

    @task
    def west() -> Any:
        return on("flow-west", 2_000_000)

    @task
    def published() -> None:
        """Wait until the cluster knows both values: for a pod created before that, the references would decide."""
        kept = entries()
        (HOME / "entries.json").write_text(json.dumps(kept))
        api, end = Api(find()), time.monotonic() + PUBLISHED_SECONDS
        while not {one["id"] for one in kept.values()} <= read_cluster(api, PUBLISHED).objects.keys():
            if time.monotonic() > end:
                raise TimeoutError("the values were not published")
            time.sleep(0.05)
        api.close()

    @task
    def both(first: Any, second: Any) -> int:
        return len(first) + len(second)

    @task
    def one(value: Any) -> int:
        return len(value)

    pod = KubernetesPodOperator(
        task_id="pod",
        name="pod",
        namespace=NAMESPACE,
        image="image:1",
        cmds=["python", "-c", READ],
        arguments=[str(HOME / "entries.json")],
        annotations={"entrepot.dev/reads": "west"},
        labels={"from": "operator"},
        config_file=os.environ["KUBECONFIG"],
        in_cluster=False,
        get_logs=False,
        callbacks=FollowData,
    )
    first, second = east(), west()
    known = published()
    known.set_upstream([first, second])
    known.set_downstream(pod)
    both(first, second)
    one(second)


def main() -> None:
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from pod_dags import executors_pod
    from sqlalchemy import select

    # For these two only the pods are created; where they run is up to the scheduler.
    run: Any = spread.test(mark_success_pattern="^(both|one)$")
    found: dict[str, Any] = {"states": {ti.task_id: str(ti.state) for ti in run.get_task_instances()}, "pods": {}}
    with create_session() as session:
        chosen = select(TaskInstance).where(TaskInstance.dag_id == "spread", TaskInstance.task_id.in_(["both", "one"]))
        for ti in session.scalars(chosen).all():
            ti.task = spread.task_dict[ti.task_id]  # type: ignore[assignment]
            found["pods"][ti.task_id] = executors_pod(ti, 1)
    Path(sys.argv[1]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
