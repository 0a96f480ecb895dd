"""Steps launched as Kubernetes jobs by dagster-k8s's own code, whose commands really run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pod_inspection import HOSTNAME, preferred_nodes

pytestmark = [pytest.mark.slow, pytest.mark.e2e, pytest.mark.timeout(700)]

JOBS = Path(__file__).with_name("pod_jobs.py")


@pytest.fixture(scope="module")
def made(module_daemon: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Results of the jobs in pod_jobs.py, run with an instance stored in files."""
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
    process = subprocess.run(
        [sys.executable, str(JOBS), str(home / "found.json")],
        env=environment,
        cwd=JOBS.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )
    steps = home / "steps.log"
    output = process.stdout + process.stderr + (steps.read_text() if steps.exists() else "")
    assert process.returncode == 0, output[-20_000:]
    results: dict[str, Any] = json.loads((home / "found.json").read_text())
    results["output"] = output[-20_000:]
    return results


def pod_templates(made: dict[str, Any], step: str) -> list[dict[str, Any]]:
    """The pod templates created for a step, one per launch."""
    return [
        manifest["spec"]["template"]
        for manifest in made["jobs"]
        if {"name": "DAGSTER_RUN_STEP_KEY", "value": step}
        in manifest["spec"]["template"]["spec"]["containers"][0]["env"]
    ]


def test_the_steps_ran(made: dict[str, Any]) -> None:
    assert (made["first"], made["second"], made["reporting"]) == (False, True, True), made["output"]
    assert made["unanswered"] == []
    assert {step: len(pod_templates(made, step)) for step in ("big", "small", "both", "choosy", "report")} == {
        "big": 1,
        "small": 1,
        "choosy": 1,
        "report": 1,
        "both": 2,
    }


def test_a_step_is_scheduled_near_its_inputs(made: dict[str, Any]) -> None:
    assert preferred_nodes(pod_templates(made, "both")[0]) == {"node-a": 100, "node-b": 33}


def test_a_re_execution_is_scheduled_near_the_first_runs_outputs(made: dict[str, Any]) -> None:
    assert preferred_nodes(pod_templates(made, "both")[1]) == {"node-a": 100, "node-b": 33}
    assert any("prefers node-a" in message for message in made["messages"]), made["messages"]


def test_a_step_without_inputs_gets_the_store(made: dict[str, Any]) -> None:
    (pod,) = pod_templates(made, "big")
    assert preferred_nodes(pod) == {}
    (container,) = pod["spec"]["containers"]
    assert "/run/stores" in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert "/run/stores" in [volume.get("hostPath", {}).get("path") for volume in pod["spec"]["volumes"]]


def test_a_step_is_scheduled_near_materialized_assets(made: dict[str, Any]) -> None:
    assert preferred_nodes(pod_templates(made, "report")[0]) == {"node-c": 100}


def test_tags_are_applied_and_the_authors_affinity_is_kept(made: dict[str, Any]) -> None:
    (pod,) = pod_templates(made, "choosy")
    assert preferred_nodes(pod) == {"node-a": 100}
    node_affinity = pod["spec"]["affinity"]["nodeAffinity"]
    (term,) = node_affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "gpu", "operator": "Exists"},
        {"key": HOSTNAME, "operator": "In", "values": ["node-a"]},
    ]
    assert not [manifest for manifest in made["jobs"] if "nodeName" in manifest["spec"]["template"]["spec"]]
