"""Jobs whose steps Dagster launches as Kubernetes jobs; a callback runs the commands of those jobs locally."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from dagster import (
    DagsterInstance,
    Definitions,
    In,
    ReexecutionOptions,
    asset,
    define_asset_job,
    execute_job,
    job,
    materialize,
    op,
    reconstructable,
)
from dagster._core.execution.api import execute_run
from dagster._core.utils import make_new_run_id
from entrepot.ids import ObjectID
from entrepot_dagster import EntrepotIOManager, entrepot_k8s_job_executor, placement_tags
from entrepot_io.keys import dagster_asset_key, dagster_output_key
from entrepot_io.sessions import SCOPE_SESSION, run_session
from recorded_steps import Recorder

DAGSTER_HOME = Path(os.environ["DAGSTER_HOME"])
LOCATIONS = DAGSTER_HOME / "locations.json"
REPAIRED_MARK = DAGSTER_HOME / "repaired"
RESOURCES = {"io_manager": EntrepotIOManager(scope="tests")}


@op
def big() -> Any:
    return np.ones(3_000_000, dtype=np.uint8)


@op
def small() -> Any:
    return np.ones(1_000_000, dtype=np.uint8)


GPU_AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]
        }
    }
}


@op(
    ins={"first": In(), "second": In()},
    tags=placement_tags(locality="required", reads=["big"], config={"pod_spec_config": {"affinity": GPU_AFFINITY}}),
)
def choosy(first: Any, second: Any) -> int:
    return len(first) + len(second)


@op(ins={"first": In(), "second": In()})
def both(first: Any, second: Any) -> int:
    if not REPAIRED_MARK.exists():
        raise RuntimeError("told to fail")
    return len(first) + len(second)


@job(executor_def=entrepot_k8s_job_executor, resource_defs=RESOURCES)
def flow() -> None:
    big_value, small_value = big(), small()
    choosy(big_value, small_value)
    both(big_value, small_value)


@asset
def raw() -> Any:
    return np.ones(2_000_000, dtype=np.uint8)


@asset
def report(raw: Any) -> int:
    return len(raw)


defs = Definitions(
    assets=[raw, report],
    jobs=[define_asset_job("reporting", selection=[report])],
    resources=RESOURCES,
    executor=entrepot_k8s_job_executor,
)


def reporting() -> Any:
    return defs.get_job_def("reporting")


def run_command(manifest: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Act as a node: run the command of the job's container with its environment."""
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    variables = {item["name"]: item["value"] for item in container["env"] if "value" in item}
    variables.pop("ENTREPOT_ADDRESS", None)  # the node's own address, here that of the test's store
    variables["DAGSTER_HOME"] = str(DAGSTER_HOME)
    arguments = [item for item in container["args"] if item != "dagster"]
    with (DAGSTER_HOME / "steps.log").open("ab") as log:
        command = [sys.executable, "-m", "dagster", *arguments]
        return subprocess.Popen(command, env=os.environ | variables, stdout=log, stderr=log)


def output_id(run_id: str, step: str) -> str:
    return str(ObjectID.derive("tests", run_session("dagster", run_id), dagster_output_key([step, "result"])))


def run_flow(instance: DagsterInstance, api: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Run the job ``flow``, which fails, and re-execute it from its failure."""
    results: dict[str, Any] = {}
    run_id = make_new_run_id()
    objects = {output_id(run_id, "big"): {"node-a": 3_000_000}, output_id(run_id, "small"): {"node-b": 1_000_000}}
    LOCATIONS.write_text(json.dumps({"version": 1, "objects": objects}))
    flow_job = reconstructable(flow)
    run = instance.create_run_for_job(
        flow_job.get_definition(), run_id=run_id, run_config=config, job_code_origin=flow_job.get_python_origin()
    )
    results["first"] = execute_run(flow_job, run, instance).success
    REPAIRED_MARK.touch()
    options = ReexecutionOptions.from_failure(run_id, instance)
    with execute_job(flow_job, instance, run_config=config, reexecution_options=options) as result:
        results["second"] = result.success
        results["messages"] = [
            str(event.message)
            for event in result.all_events
            if event.event_specific_data is not None
            and "entrepot/placement" in getattr(event.event_specific_data, "metadata", {})
        ]
    return results | {"jobs": list(api.jobs), "unanswered": list(api.unimplemented)}


def run_reporting(instance: DagsterInstance, api: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Run a job that reads a materialized asset."""
    jobs_before, unanswered_before = len(api.jobs), len(api.unimplemented)
    asset_id = str(ObjectID.derive("tests", SCOPE_SESSION, dagster_asset_key(["raw"])))
    LOCATIONS.write_text(json.dumps({"version": 1, "objects": {asset_id: {"node-c": 2_000_000}}}))
    assert materialize([raw], instance=instance, resources=RESOURCES).success
    with execute_job(reconstructable(reporting), instance, run_config=config) as result:
        success = result.success
    return {
        "success": success,
        "jobs": api.jobs[jobs_before:],
        "unanswered": api.unimplemented[unanswered_before:],
    }


def main() -> None:
    from kube_api import serving

    config = {
        "execution": {
            "config": {
                "job_image": "image:1",
                "job_namespace": "jobs",
                "load_incluster_config": False,
                "kubeconfig_file": str(DAGSTER_HOME / "kubeconfig"),
                "locations": str(LOCATIONS),
                "socket_folder": "/run/stores",
            }
        }
    }
    recorder = Recorder(Path(sys.argv[1]))
    with serving(DAGSTER_HOME, run_command) as (api, _), DagsterInstance.get() as instance:
        recorder.run("flow", lambda: run_flow(instance, api, config))
        recorder.run("reporting", lambda: run_reporting(instance, api, config))


if __name__ == "__main__":
    from importlib import import_module

    jobs = import_module("pod_jobs")  # reconstructable() needs an importable module name

    jobs.main()
