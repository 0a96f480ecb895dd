"""The chart linted and rendered by Helm itself, and the result accepted by a real API server."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from entrepot_operator import install_manifests

MANAGER = {"certManager": {"enabled": True, "issuerRef": {"kind": "ClusterIssuer", "name": "ours"}}}
EVERYTHING = {
    "image": {"repository": "registry.example/entrepot", "tag": "9", "pullSecrets": [{"name": "key"}]},
    "operator": {
        "replicas": 3,
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "system-cluster-critical",
        "extraArgs": ["--resync-seconds", "60"],
        "podAnnotations": {"scrape": "true"},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "affinity": {"nodeAffinity": {}},
        "serviceAccount": {"annotations": {"role": "x"}},
    },
    "podNamespaces": ["default", "kube-public"],
    "networkPolicy": {"enabled": True, "metricsFrom": [{"podSelector": {}}]},
    "metrics": {"service": {"enabled": True}},
    "webhook": {"mounts": False, **MANAGER},
    "store": {"create": True, "spec": {"capacity": "1Gi", "nodeSelector": {"disk": "ssd"}}},
}
NOTHING = {
    "webhook": {"enabled": False},
    "policies": {"annotations": False, "ownNode": False},
    "gates": {"enabled": False},
}


def rendered(helm: Any, values: Any, namespace: str = install_manifests.NAMESPACE) -> list[Any]:
    done = helm(values, namespace)
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout)
    return [
        manifest
        for name, text in files.items()
        if name.endswith(".yaml")
        for manifest in yaml.safe_load_all(text)
        if manifest
    ]


def key(manifest: Any) -> str:
    return f"{manifest['kind']}/{manifest['metadata'].get('namespace', '')}/{manifest['metadata']['name']}"


@pytest.mark.parametrize("values", [{}, EVERYTHING, NOTHING], ids=["default", "everything", "nothing"])
def test_it_is_rendered_as_the_engine_alone_does(helm: Any, render: Any, values: Any) -> None:
    """Therefore the results of test_rendered_chart.py hold for Helm too."""
    assert {key(manifest): manifest for manifest in rendered(helm, values)} == {
        key(manifest): manifest for manifest in render(values)
    }


def test_another_namespace_is_everywhere(helm: Any) -> None:
    manifests = rendered(helm, {}, "stores")
    assert install_manifests.NAMESPACE not in str(manifests)
    assert {manifest["metadata"]["namespace"] for manifest in manifests if "namespace" in manifest["metadata"]} == {
        "stores"
    }


def test_what_is_chosen_is_there(helm: Any) -> None:
    by_key = {key(manifest): manifest for manifest in rendered(helm, EVERYTHING)}
    spec = by_key["Deployment/entrepot-system/entrepot-operator"]["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert spec["replicas"] == 3
    assert container["image"] == "registry.example/entrepot:9"
    assert container["args"][-2:] == ["--resync-seconds", "60"]
    assert {"--without-mounts", "--webhook-certificates"} <= set(container["args"])
    assert container["volumeMounts"][0]["mountPath"] == container["args"][container["args"].index("/certificates")]
    assert pod["volumes"][0]["secret"]["secretName"] == "entrepot-webhook-cert-manager"
    assert (pod["imagePullSecrets"], pod["nodeSelector"]) == ([{"name": "key"}], {"disk": "ssd"})
    assert by_key["Certificate/entrepot-system/entrepot-webhook"]["spec"]["issuerRef"]["name"] == "ours"
    configuration = by_key["MutatingWebhookConfiguration//entrepot-webhook"]
    assert "cert-manager.io/inject-ca-from" in configuration["metadata"]["annotations"]
    assert by_key["Store/entrepot-system/default"]["spec"]["image"] == "registry.example/entrepot:9"


def test_what_is_left_out_is_not_there(helm: Any) -> None:
    manifests = rendered(helm, NOTHING)
    assert not [manifest for manifest in manifests if "Webhook" in manifest["kind"] or "Policy" in manifest["kind"]]
    (deployment,) = [manifest for manifest in manifests if manifest["kind"] == "Deployment"]
    assert "--no-webhook" in deployment["spec"]["template"]["spec"]["containers"][0]["args"]


@pytest.mark.parametrize("values", [{"operator": {"replicas": 0}}, {"wrong": 1}, {"webhook": {"enabled": "x"}}])
def test_wrong_values_are_refused(helm: Any, values: Any) -> None:
    done = helm(values, install_manifests.NAMESPACE)
    assert done.returncode != 0
    assert "schema" in done.stderr


@pytest.mark.parametrize("values", [{}, EVERYTHING, NOTHING], ids=["default", "everything", "nothing"])
def test_an_api_server_takes_it(helm: Any, entrepot_cluster: Any, values: Any) -> None:
    namespace = entrepot_cluster.namespace("chart")
    for manifest in rendered(helm, values, namespace):
        if not manifest["apiVersion"].startswith("cert-manager.io/"):  # their CRDs are not ours to install
            entrepot_cluster.apply(entrepot_cluster.path_of(manifest), manifest, dry_run=True)
