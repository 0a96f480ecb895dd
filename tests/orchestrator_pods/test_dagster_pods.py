"""Steps launched as Kubernetes jobs by dagster-k8s's own code, whose commands really run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pod_inspection import HOSTNAME, preferred_nodes
from recorded_steps import StepResults, run_program

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

JOBS = Path(__file__).with_name("pod_jobs.py")


@pytest.fixture(scope="module")
def steps(module_daemon: Any, tmp_path_factory: pytest.TempPathFactory) -> StepResults:
    """Outcomes of the jobs in pod_jobs.py, run with an instance stored in files."""
    home = tmp_path_factory.mktemp("dagster")
    launcher = {
        "module": "dagster_k8s",
        "class": "K8sRunLauncher",
        "config": {
            "service_account_name": "dagster",
            "instance_config_map": "dagster-instance",
            "dagster_home": str(home),
            "load_incluster_config": False,
            "kubeconfig_file": str(home / "kubeconfig"),
            "job_image": "image:1",
        },
    }
    (home / "dagster.yaml").write_text(json.dumps({"run_launcher": launcher, "telemetry": {"enabled": False}}))
    environment = os.environ | {"DAGSTER_HOME": str(home), "ENTREPOT_ADDRESS": module_daemon.address}
    file = home / "found.json"
    results = run_program([sys.executable, str(JOBS), str(file)], file, environment=environment, folder=JOBS.parent)
    log = home / "steps.log"
    results.output += log.read_text(errors="replace") if log.exists() else ""
    return results


@pytest.fixture
def flow(steps: StepResults) -> dict[str, Any]:
    """Results of the job ``flow`` and its re-execution."""
    results: dict[str, Any] = steps.value("flow")
    return results


def pod_templates(results: dict[str, Any], step: str) -> list[dict[str, Any]]:
    """The pod templates created for a step, one per launch."""
    return [
        manifest["spec"]["template"]
        for manifest in results["jobs"]
        if {"name": "DAGSTER_RUN_STEP_KEY", "value": step}
        in manifest["spec"]["template"]["spec"]["containers"][0]["env"]
    ]


def test_the_steps_ran(steps: StepResults, flow: dict[str, Any]) -> None:
    assert (flow["first"], flow["second"]) == (False, True), steps.output[-20_000:]
    assert flow["unanswered"] == []
    assert {step: len(pod_templates(flow, step)) for step in ("big", "small", "both", "choosy")} == {
        "big": 1,
        "small": 1,
        "choosy": 1,
        "both": 2,
    }


def test_a_step_is_scheduled_near_its_inputs(flow: dict[str, Any]) -> None:
    assert preferred_nodes(pod_templates(flow, "both")[0]) == {"node-a": 100, "node-b": 33}


def test_a_re_execution_is_scheduled_near_the_first_runs_outputs(flow: dict[str, Any]) -> None:
    assert preferred_nodes(pod_templates(flow, "both")[1]) == {"node-a": 100, "node-b": 33}
    assert any("prefers node-a" in message for message in flow["messages"]), flow["messages"]


def test_a_step_without_inputs_gets_the_store(flow: dict[str, Any]) -> None:
    (pod,) = pod_templates(flow, "big")
    assert preferred_nodes(pod) == {}
    (container,) = pod["spec"]["containers"]
    assert "/run/stores" in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert "/run/stores" in [volume.get("hostPath", {}).get("path") for volume in pod["spec"]["volumes"]]


def test_a_step_is_scheduled_near_materialized_assets(steps: StepResults) -> None:
    reporting = steps.value("reporting")
    assert reporting["success"], steps.output[-20_000:]
    assert reporting["unanswered"] == []
    (pod,) = pod_templates(reporting, "report")
    assert preferred_nodes(pod) == {"node-c": 100}


def test_tags_are_applied_and_the_authors_affinity_is_kept(flow: dict[str, Any]) -> None:
    (pod,) = pod_templates(flow, "choosy")
    assert preferred_nodes(pod) == {"node-a": 100}
    node_affinity = pod["spec"]["affinity"]["nodeAffinity"]
    (term,) = node_affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "gpu", "operator": "Exists"},
        {"key": HOSTNAME, "operator": "In", "values": ["node-a"]},
    ]
    assert not [manifest for manifest in flow["jobs"] if "nodeName" in manifest["spec"]["template"]["spec"]]
