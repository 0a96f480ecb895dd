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

from made_pods import HOSTNAME, drawn

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
    done = subprocess.run(
        [sys.executable, str(JOBS), str(home / "found.json")],
        env=environment,
        cwd=JOBS.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )
    steps = home / "steps.log"
    said = done.stdout + done.stderr + (steps.read_text() if steps.exists() else "")
    assert done.returncode == 0, said[-20_000:]
    found: dict[str, Any] = json.loads((home / "found.json").read_text())
    found["said"] = said[-20_000:]
    return found


def pods(made: dict[str, Any], step: str) -> list[dict[str, Any]]:
    """The pod templates created for a step, one per launch."""
    return [
        one["spec"]["template"]
        for one in made["jobs"]
        if {"name": "DAGSTER_RUN_STEP_KEY", "value": step} in one["spec"]["template"]["spec"]["containers"][0]["env"]
    ]


def test_the_steps_ran(made: dict[str, Any]) -> None:
    assert (made["first"], made["second"], made["reporting"]) == (False, True, True), made["said"]
    assert made["unanswered"] == []
    assert {step: len(pods(made, step)) for step in ("big", "small", "both", "choosy", "report")} == {
        "big": 1,
        "small": 1,
        "choosy": 1,
        "report": 1,
        "both": 2,
    }


def test_a_step_is_drawn_to_its_inputs(made: dict[str, Any]) -> None:
    assert drawn(pods(made, "both")[0]) == {"node-a": 100, "node-b": 33}


def test_a_re_execution_is_drawn_to_what_the_first_run_made(made: dict[str, Any]) -> None:
    assert drawn(pods(made, "both")[1]) == {"node-a": 100, "node-b": 33}
    assert any("drawn to node-a" in one for one in made["told"]), made["told"]


def test_a_step_without_inputs_gets_the_store(made: dict[str, Any]) -> None:
    (pod,) = pods(made, "big")
    assert drawn(pod) == {}
    (container,) = pod["spec"]["containers"]
    assert "/run/stores" in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert "/run/stores" in [volume.get("hostPath", {}).get("path") for volume in pod["spec"]["volumes"]]


def test_an_asset_that_was_materialized_before_draws(made: dict[str, Any]) -> None:
    assert drawn(pods(made, "report")[0]) == {"node-c": 100}


def test_tags_say_more_and_the_authors_own_affinity_stays(made: dict[str, Any]) -> None:
    (pod,) = pods(made, "choosy")
    assert drawn(pod) == {"node-a": 100}
    node = pod["spec"]["affinity"]["nodeAffinity"]
    (term,) = node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "gpu", "operator": "Exists"},
        {"key": HOSTNAME, "operator": "In", "values": ["node-a"]},
    ]
    assert not [one for one in made["jobs"] if "nodeName" in one["spec"]["template"]["spec"]]
