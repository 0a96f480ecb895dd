"""A job whose steps Dagster launches in a cluster: the scheduler places them, and each uses its node's store."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from dagster import DagsterInstance, execute_job, job, op, reconstructable
from entrepot_dagster import EntrepotIOManager, entrepot_k8s_job_executor, placement_tags

NAMESPACE = os.environ["NAMESPACE"]


def only_on(node: str) -> dict[str, Any]:
    return {"dagster-k8s/config": {"pod_spec_config": {"nodeSelector": {"kubernetes.io/hostname": node}}}}


@op(tags=only_on("flow-east"))
def east() -> Any:
    return np.ones(3_000_000, dtype=np.uint8)


@op(tags=only_on("flow-west"))
def west() -> Any:
    return np.ones(2_000_000, dtype=np.uint8)


@op
def halve(value: Any) -> Any:
    return value[::2].copy()


@op(tags=placement_tags(locality="required"))
def count(value: Any) -> int:
    return len(value)


@job(
    executor_def=entrepot_k8s_job_executor,
    resource_defs={"io_manager": EntrepotIOManager(scope="tests")},
)
def spread() -> None:
    halve(west())
    count(east())


def main() -> None:
    config = {
        "execution": {
            "config": {
                "job_image": "image:1",
                "job_namespace": NAMESPACE,
                "load_incluster_config": False,
                "kubeconfig_file": os.environ["KUBECONFIG"],
                # A step's inputs were just written: their references give the node before the cluster knows the
                # objects.
                "locations": f"cluster:{os.environ['PUBLISHED']},references",
            }
        }
    }
    with (
        DagsterInstance.get() as instance,
        execute_job(reconstructable(spread), instance, run_config=config, raise_on_error=False) as result,
    ):
        results = {"success": result.success}
    Path(sys.argv[1]).write_text(json.dumps(results))


if __name__ == "__main__":
    from importlib import import_module

    import_module("cluster_jobs").main()  # reconstructable() needs an importable module name
