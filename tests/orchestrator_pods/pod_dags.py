"""DAGs that Airflow runs, and the pods that its Kubernetes executor's own code creates for their task instances."""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG, task, task_group
from airflow.sdk.exceptions import AirflowSkipException
from entrepot.ids import ObjectID
from entrepot_airflow import DataLocalityCallback, pod_override
from entrepot_io.sessions import kedro_session_in_airflow
from entrepot_operator.placement.placement_hints import build_annotations
from kube_api import serving
from recorded_steps import Recorder

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
AIRFLOW_HOME = Path(os.environ["AIRFLOW_HOME"])
LOCATIONS = AIRFLOW_HOME / "locations.json"


def ones(count: int) -> Any:
    return np.ones(count, dtype=np.uint8)


with DAG("flow", schedule=None, start_date=START) as flow:

    @task
    def big() -> Any:
        return ones(3_000_000)

    @task
    def small() -> Any:
        return ones(1_000_000)

    @task
    def sizes() -> list[int]:
        return [100_000, 200_000]

    @task
    def grow(size: int) -> Any:
        return ones(size)

    @task
    def shrink(values: Any) -> int:
        return len(values)

    @task
    def odd(size: int) -> Any:
        if size == 100_000:
            raise AirflowSkipException
        return ones(size)

    @task(trigger_rule="none_failed")
    def after(values: Any) -> int:
        return len(values)

    @task
    def gather(values: Any) -> int:
        return sum(len(value) for value in values)

    @task(executor_config={"pod_override": pod_override(reads=["big"], locality="required")})
    def choosy(first: Any, second: Any) -> int:
        return len(first) + len(second)

    @task(executor_config={"pod_override": pod_override(locality="off", mounts=False, store="off")})
    def indifferent(value: Any) -> int:
        return len(value)

    # The pod of a Kedro node: it reads datasets of the DAG run's session, given by key.
    @task(
        executor_config={
            "pod_override": pod_override(annotations=build_annotations(keys=["dataset:raw"], scope="project"))
        }
    )
    def nodes() -> None:
        return None

    @task
    def both(first: Any, second: Any) -> int:
        return len(first) + len(second)

    @task_group
    def branch(size: int) -> None:
        @task
        def begin(size: int) -> Any:
            return ones(size)

        @task
        def end(values: Any) -> int:
            return len(values)

        end(begin(size))

    nodes()
    big_value, small_value = big(), small()
    both(big_value, small_value)
    choosy(big_value, small_value)
    indifferent(big_value)
    grown = grow.expand(size=sizes())
    after.expand(values=odd.expand(size=sizes()))
    shrink.expand(values=grown)
    gather(grown)
    branch.expand(size=[300_000, 400_000])

GPU_AFFINITY: Any = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
        }
    }
}
KUBECONFIG = str(AIRFLOW_HOME / "kubeconfig")
with DAG("operator", schedule=None, start_date=START) as operator:

    @task
    def made() -> Any:
        return ones(5_000_000)

    @task
    def moved(value: Any) -> None:
        """Move the data to other nodes between the tasks, by rewriting the locations file."""
        write_locations(entries("operator"))

    @task
    def unread() -> Any:
        return ones(9_000_000)

    made_value = made()
    pod = KubernetesPodOperator(
        task_id="pod",
        name="pod",
        namespace="jobs",
        image="image:1",
        arguments=["{{ ti.xcom_pull('small') }}"],
        config_file=KUBECONFIG,
        in_cluster=False,
        callbacks=DataLocalityCallback,
        affinity=GPU_AFFINITY,
    )
    plain = KubernetesPodOperator(
        task_id="plain",
        name="plain",
        namespace="jobs",
        image="image:1",
        config_file=KUBECONFIG,
        in_cluster=False,
    )
    named = KubernetesPodOperator(
        task_id="named",
        name="named",
        namespace="jobs",
        image="image:1",
        config_file=KUBECONFIG,
        in_cluster=False,
        annotations={"entrepot.dev/reads": "unread"},
        callbacks=DataLocalityCallback,
    )
    # Sequential, so that pods are created in a known order.
    moved([made_value, unread()]).set_downstream(pod)
    made_value.set_downstream([pod, plain])
    pod.set_downstream(plain)
    plain.set_downstream(named)


def entries(dag_id: str) -> dict[str, Any]:
    """Content of Airflow's database, by task and map index."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        rows = session.scalars(select(XComModel).where(XComModel.dag_id == dag_id, XComModel.key == "return_value"))
        return {f"{row.task_id}[{row.map_index}]": row.value for row in rows.all()}


def write_locations(entries: dict[str, Any], prefix: str = "node") -> None:
    """Write a locations file in which each value is on a node of its own, named after the task."""
    objects = {
        value["id"]: {f"{prefix}-{name.replace('[-1]', '').replace('[', '-').strip(']')}": value["nbytes"]}
        for name, value in entries.items()
        if isinstance(value, dict) and "id" in value
    }
    new_file = LOCATIONS.with_suffix(".new")
    new_file.write_text(json.dumps({"version": 1, "objects": objects}))
    new_file.rename(LOCATIONS)


def executor_pod(ti: Any, try_number: int, override: Any = None) -> dict[str, Any]:
    """The pod that the Kubernetes executor creates for a task instance."""
    from airflow.providers.cncf.kubernetes.pod_generator import PodGenerator
    from kubernetes.client import ApiClient, V1Container, V1Pod, V1PodSpec

    task_override: Any = PodGenerator.from_obj(getattr(ti.task, "executor_config", None) or {})
    pod = PodGenerator.construct_pod(
        dag_id=ti.dag_id,
        task_id=ti.task_id,
        pod_id=f"{ti.dag_id}-{ti.task_id}".replace("_", "-").replace(".", "-"),
        try_number=try_number,
        kube_image="airflow:3",
        date=None,
        args=["run"],
        pod_override_object=override or task_override,
        base_worker_pod=V1Pod(spec=V1PodSpec(containers=[V1Container(name="base")])),
        namespace="airflow",
        scheduler_job_id="7",
        run_id=ti.run_id,
        map_index=ti.map_index,
        with_mutation_hook=True,
    )
    serialized: Any = ApiClient().sanitize_for_serialization(pod)
    return dict(serialized)


def executor_pods(run: Any, try_number: int) -> dict[str, Any]:
    from airflow.models.log import Log
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    pods = {}
    with create_session() as session:
        uncommitted = Log("open", owner="scheduler", extra=f"attempt {try_number}", dag_id=run.dag_id)
        session.add(uncommitted)  # stands for an open transaction of the scheduler
        for ti in session.scalars(
            select(TaskInstance).where(TaskInstance.dag_id == run.dag_id, TaskInstance.run_id == run.run_id)
        ).all():
            task: Any = flow.task_dict[ti.task_id]
            ti.task = task
            pods[f"{ti.task_id}[{ti.map_index}]"] = executor_pod(ti, try_number)
        session.rollback()
    with create_session() as session:
        committed = session.scalars(select(Log).where(Log.event == "open")).all()
        assert not committed, "what the scheduler had not committed was committed"
    return pods


def pod_error(ti: Any, locality: str) -> list[str]:
    """The error of the executor's code for a task whose pod has an invalid annotation."""
    from airflow.providers.cncf.kubernetes.exceptions import PodMutationHookException
    from kubernetes.client import V1ObjectMeta, V1Pod

    override = V1Pod(metadata=V1ObjectMeta(annotations={"entrepot.dev/locality": locality}))
    try:
        executor_pod(ti, 1, override)
    except PodMutationHookException as error:
        return [type(error.__cause__).__name__, str(error.__cause__)]
    return []


def pod_without_database() -> dict[str, Any]:
    """The pod created while the database is unreachable."""
    from types import SimpleNamespace

    task_instance = SimpleNamespace(task=None, dag_id="flow", task_id="both", run_id="r", map_index=-1)
    return executor_pod(task_instance, 1)


def main() -> None:
    write_locations({})
    recorder = Recorder(Path(sys.argv[1]))
    if "--without-database" in sys.argv:
        recorder.run("without database", pod_without_database)
        return
    recorder.run("flow", run_flow)
    recorder.run("operator", run_operator)


def run_flow() -> dict[str, Any]:
    """Run the DAG ``flow``; return the pods of its tasks in several situations."""
    run = flow.test()
    states = {str(ti.state) for ti in run.get_task_instances()}
    results: dict[str, Any] = {"states": sorted(states)}
    values = entries("flow")
    raw = ObjectID.derive("project", kedro_session_in_airflow("flow", run.run_id), "dataset:raw")
    values["kedro"] = {"id": str(raw), "nbytes": 1000}
    write_locations(values)
    results["first"] = executor_pods(run, 1)
    write_locations(values, "other")
    results["second"] = executor_pods(run, 2)
    results["refused"] = pod_error(run.get_task_instances()[0], "nearby")
    LOCATIONS.unlink()
    results["unknown"] = executor_pods(run, 3)
    return results


def run_operator() -> dict[str, Any]:
    """Run the DAG ``operator``; return the pods that its operators created."""
    LOCATIONS.unlink(missing_ok=True)
    with serving(AIRFLOW_HOME) as (api, _):
        run = operator.test()
        states = {ti.task_id: str(ti.state) for ti in run.get_task_instances()}
        return {"states": states, "pods": api.pods, "unanswered": api.unimplemented}


if __name__ == "__main__":
    main()
