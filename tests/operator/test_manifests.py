"""Every shipped manifest, and injected workloads of every kind, are accepted by a real API server."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import entrepot_operator
import pytest
import yaml
from entrepot_operator.placement import Node, inject_document

MANIFESTS = Path(entrepot_operator.__file__).with_name("manifests")
FILES = sorted(path for path in MANIFESTS.rglob("*.yaml") if path.name != "kustomization.yaml")
A, B = "aa" * 20, "bb" * 20
PLACES = {A: {"node-a": 5 << 30, "node-b": 1 << 30}, B: {"node-b": 2 << 30}}
NODES = {
    name: Node({"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone})
    for name, zone in (("node-a", "east"), ("node-b", "west"))
}


@pytest.fixture(scope="module")
def system(entrepot_cluster: Any) -> Any:
    """The cluster, with the namespace that the manifests name."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "entrepot-system"}}
    entrepot_cluster.apply("/api/v1/namespaces/entrepot-system", namespace)
    return entrepot_cluster


def test_there_are_manifests() -> None:
    assert {path.parent.name for path in FILES} >= {"crds", "publisher", "reader"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(MANIFESTS)))
def test_a_manifest_is_taken(system: Any, path: Path) -> None:
    for manifest in yaml.safe_load_all(path.read_text()):
        created = system.apply(system.path_of(manifest), manifest, dry_run=True)
        warned = [
            each for each in created.get("status", {}).get("conditions", []) if each["type"] == "NonStructuralSchema"
        ]
        assert not warned, warned


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES}), ids=lambda path: path.name)
def test_a_kustomization_names_every_manifest_beside_it(folder: Path) -> None:
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(path.name for path in FILES if path.parent == folder)


def _template(**annotations: str) -> dict[str, Any]:
    own = {f"entrepot.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    container = {"name": "main", "image": "none", "env": [{"name": "X", "value": "$(ENTREPOT_NODE)"}]}
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {
        "metadata": {"labels": {"app": "x"}, "annotations": own},
        "spec": {"containers": [container], "affinity": {"nodeAffinity": required}},
    }


def _workloads() -> list[dict[str, Any]]:
    """One workload of each kind, with as many different annotations as possible."""
    pod = _template(requires=f"{A},{B}", locality="required", store="required")
    selector = {"matchLabels": {"app": "x"}}
    batch = {**_template(requires=A), "spec": {**_template()["spec"], "restartPolicy": "Never"}}
    indexed = copy.deepcopy(batch)
    indexed["metadata"]["annotations"] = {"entrepot.dev/partitioned": f"{A},{B}"}
    job = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": indexed}
    named = {"metadata": {"name": "x"}}
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {**pod["metadata"], "name": "x"}, "spec": pod["spec"]},
        {"apiVersion": "v1", "kind": "PodTemplate", **named, "template": pod},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            **named,
            "spec": {"selector": selector, "template": _template(requires=A)},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            **named,
            "spec": {"serviceName": "x", "selector": selector, "template": _template(partitioned=f"{A},{B}")},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            **named,
            "spec": {"selector": selector, "template": _template(containers="main")},
        },
        {"apiVersion": "batch/v1", "kind": "Job", **named, "spec": job},
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            **named,
            "spec": {"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": batch}}},
        },
    ]


@pytest.fixture(scope="module")
def namespace(entrepot_cluster: Any) -> str:
    return str(entrepot_cluster.namespace())


@pytest.mark.parametrize("workload", _workloads(), ids=lambda workload_case: str(workload_case["kind"]))
def test_an_injected_workload_is_taken(entrepot_cluster: Any, namespace: str, workload: dict[str, Any]) -> None:
    path: Callable[..., str] = entrepot_cluster.path_of
    # Accepted before the injection, so a later refusal is due to the injection.
    entrepot_cluster.apply(path(workload, namespace), workload, dry_run=True)
    done = inject_document(copy.deepcopy(workload), PLACES, nodes=NODES)
    assert done.content != workload
    entrepot_cluster.apply(path(workload, namespace), done.content, dry_run=True)
