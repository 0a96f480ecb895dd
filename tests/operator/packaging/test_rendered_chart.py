"""The chart's resources for different values, rendered by the template engine that Helm uses."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from entrepot_operator import install_manifests
from entrepot_operator.controller.commands import add_subcommand
from entrepot_operator.controller.settings import Settings
from entrepot_operator.controller.state import gateway_container, metrics_container, owned_resources

STANDARD = {
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/component",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
}
OURS = {"app.kubernetes.io/name", "app.kubernetes.io/component"}


def key(manifest: Any) -> str:
    return f"{manifest['kind']}/{manifest['metadata'].get('namespace', '')}/{manifest['metadata']['name']}"


def by_key(rendered: list[Any]) -> dict[str, Any]:
    manifests = {key(manifest): manifest for manifest in rendered}
    assert len(manifests) == len(rendered)
    return manifests


def plain(value: Any) -> Any:
    """An object with only those labels that the manifests have too."""
    if isinstance(value, dict):
        return {
            name: {label: text for label, text in each.items() if label in OURS} if name == "labels" else plain(each)
            for name, each in value.items()
        }
    return [plain(each) for each in value] if isinstance(value, list) else value


def pod_rules(rendered: list[Any]) -> list[Any]:
    """Rules about pods in cluster roles."""
    return [
        rule
        for manifest in rendered
        if manifest["kind"] == "ClusterRole"
        for rule in manifest["rules"]
        if any(each.startswith("pods") for each in rule["resources"])
    ]


def operator_of(rendered: list[Any]) -> Any:
    (deployment,) = [each for each in rendered if each["kind"] == "Deployment"]
    return deployment


def arguments_of(rendered: list[Any]) -> list[str]:
    listed: list[str] = operator_of(rendered)["spec"]["template"]["spec"]["containers"][0]["args"]
    return listed


def settings_of(rendered: list[Any]) -> Any:
    """The operator's arguments as parsed by its command line."""
    import argparse

    parser = argparse.ArgumentParser()
    add_subcommand(parser.add_subparsers())
    return parser.parse_args(arguments_of(rendered))


def test_by_default_it_installs_what_the_manifests_do(render: Any) -> None:
    for namespace in (install_manifests.NAMESPACE, "stores"):
        rendered = by_key(render(namespace=namespace))
        manifests = by_key(
            [
                manifest
                for manifest in install_manifests.objects(namespace=namespace)
                if manifest["kind"] not in ("Namespace", "CustomResourceDefinition")
            ]
        )
        assert rendered.keys() == manifests.keys()
        for name, manifest in manifests.items():
            assert plain(rendered[name]) == manifest, name


def test_all_has_the_standard_labels(render: Any) -> None:
    everything = {
        "store": {"create": True},
        "metrics": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}},
        "networkPolicy": {"enabled": True},
        "webhook": {"certManager": {"enabled": True, "issuerRef": {"name": "ours"}}},
        "podNamespaces": ["team"],
    }
    rendered = render(everything, release="blue")
    assert len(rendered) > 20
    for manifest in [*rendered, operator_of(rendered)["spec"]["template"] | {"kind": "pod"}]:
        labels = manifest["metadata"]["labels"]
        assert set(labels) == STANDARD, manifest["kind"]
        assert (labels["app.kubernetes.io/instance"], labels["app.kubernetes.io/part-of"]) == ("blue", "entrepot")
        assert labels["helm.sh/chart"] == f"entrepot-{install_manifests.IMAGE.partition(':')[2]}"


def test_what_selects_the_operator_can_stay_for_ever(render: Any) -> None:
    """A Deployment's selector is immutable, so it must not contain the version."""
    spec = operator_of(render())["spec"]
    assert set(spec["selector"]["matchLabels"]) == OURS
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_without_gates_there_are_no_rights_on_pods_elsewhere(render: Any) -> None:
    rendered = render({"gates": {"enabled": False}})
    assert pod_rules(rendered) == []
    assert not [manifest for manifest in rendered if manifest["metadata"]["name"].endswith("-gates")]
    (own,) = [
        manifest
        for manifest in rendered
        if manifest["kind"] == "Role" and manifest["metadata"]["name"] == "entrepot-operator"
    ]
    assert [rule["verbs"] for rule in own["rules"] if rule["resources"] == ["pods"]] == [["list", "watch"]]
    assert settings_of(rendered).no_gates


def test_gates_need_to_see_pods_and_to_take_the_gate_off(render: Any) -> None:
    rendered = render()
    assert pod_rules(rendered) == [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]}
    ]
    # A patch could change any field of a pod; therefore a denying policy is bound along with the role.
    manifests = by_key(rendered)
    policy = manifests["ValidatingAdmissionPolicy//entrepot-gates"]["spec"]
    assert (policy["failurePolicy"], policy["matchConstraints"]["resourceRules"][0]["operations"]) == (
        "Fail",
        ["UPDATE"],
    )
    binding = manifests["ValidatingAdmissionPolicyBinding//entrepot-gates"]["spec"]
    assert binding == {"policyName": "entrepot-gates", "validationActions": ["Deny"]}


def test_the_policy_is_about_the_operator_of_its_installation(render: Any) -> None:
    manifests = by_key(render(namespace="blue"))
    (condition,) = manifests["ValidatingAdmissionPolicy//entrepot-blue-gates"]["spec"]["matchConditions"]
    assert "'system:serviceaccount:blue:entrepot-operator'" in condition["expression"]


def test_gates_of_some_namespaces_are_bound_there_alone(render: Any) -> None:
    rendered = render({"podNamespaces": ["team-a", "team-b"]})
    bound = [
        manifest
        for manifest in rendered
        if "Binding" in manifest["kind"] and manifest["metadata"]["name"] == "entrepot-gates"
    ]
    kinds = [
        (manifest["kind"], manifest["metadata"].get("namespace"))
        for manifest in bound
        if "Policy" not in manifest["kind"]
    ]
    assert kinds == [("RoleBinding", "team-a"), ("RoleBinding", "team-b")]
    for manifest in bound:
        if manifest["kind"] == "RoleBinding":
            assert manifest["roleRef"]["name"] == "entrepot-gates"
            assert manifest["subjects"][0]["namespace"] == install_manifests.NAMESPACE
    assert settings_of(rendered).gates_namespace == ["team-a", "team-b"]


def test_webhook_and_annotations_keep_to_the_same_namespaces(render: Any) -> None:
    only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-a", "team-b"]}
    manifests = by_key(render({"podNamespaces": ["team-a", "team-b"]}))
    for webhook in manifests["MutatingWebhookConfiguration//entrepot-webhook"]["webhooks"]:
        assert only in webhook["namespaceSelector"]["matchExpressions"]
    policy = manifests["ValidatingAdmissionPolicy//entrepot-annotations"]["spec"]["matchConstraints"]
    assert policy["namespaceSelector"] == {"matchExpressions": [only]}
    manifests = by_key(render())
    assert (
        "namespaceSelector"
        not in manifests["ValidatingAdmissionPolicy//entrepot-annotations"]["spec"]["matchConstraints"]
    )
    for webhook in manifests["MutatingWebhookConfiguration//entrepot-webhook"]["webhooks"]:
        expressions = webhook["namespaceSelector"]["matchExpressions"]
        assert [each["operator"] for each in expressions if each["key"] == only["key"]] == ["NotIn"], "all namespaces"


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_node_can_be_drained_whatever_the_number_of_replicas(render: Any, replicas: int) -> None:
    rendered = render({"operator": {"replicas": replicas}})
    (budget,) = [manifest for manifest in rendered if manifest["kind"] == "PodDisruptionBudget"]
    spec = budget["spec"]
    allowed = spec["maxUnavailable"] if "maxUnavailable" in spec else replicas - spec["minAvailable"]
    assert allowed >= 1
    assert operator_of(rendered)["spec"]["replicas"] == replicas


def test_what_may_be_chosen_for_the_operator_is_there(render: Any) -> None:
    affinity: Any = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}
    env = [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]
    values = {
        "operator": {
            "affinity": affinity,
            "podAnnotations": {"team": "data", "scrape": "true"},
            "extraEnv": env,
            "serviceAccount": {"annotations": {"role": "arn:x"}},
        },
        "publisher": {"serviceAccount": {"annotations": {"role": "arn:y"}}},
    }
    rendered = render(values)
    by_name, pod = by_key(rendered), operator_of(rendered)["spec"]["template"]
    assert pod["spec"]["affinity"] == affinity
    assert pod["metadata"]["annotations"] == {"team": "data", "scrape": "true"}
    assert [item["name"] for item in pod["spec"]["containers"][0]["env"]] == ["POD_NAME", "POD_IP", "HTTPS_PROXY"]
    accounts = [by_name[f"ServiceAccount/entrepot-system/entrepot-{item}"] for item in ("operator", "publisher")]
    assert [item["metadata"]["annotations"] for item in accounts] == [{"role": "arn:x"}, {"role": "arn:y"}]
    default = operator_of(render())["spec"]["template"]
    assert "podAntiAffinity" in default["spec"]["affinity"]
    assert "annotations" not in default["metadata"]


def test_numbers_are_found_by_prometheus(render: Any) -> None:
    values = {"metrics": {"serviceMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prom"}}}}
    rendered = render(values, release="blue")
    manifests = by_key(rendered)
    monitor, service = (manifests[f"{item}/entrepot-system/entrepot-operator{end}"] for item, end in
                        (("ServiceMonitor", ""), ("Service", "-metrics")))  # fmt: skip
    assert monitor["metadata"]["labels"]["release"] == "prom"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    (port,) = service["spec"]["ports"]
    container = operator_of(rendered)["spec"]["template"]["spec"]["containers"][0]
    assert endpoint == {"port": port["name"], "path": "/metrics", "interval": "15s"}
    assert port["targetPort"] in [item["name"] for item in container["ports"]]
    labels = operator_of(rendered)["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    # The webhook's Service has other labels, so that its port is not scraped for metrics.
    webhook = manifests["Service/entrepot-system/entrepot-webhook"]["metadata"]["labels"]
    assert not monitor["spec"]["selector"]["matchLabels"].items() <= webhook.items()
    assert not [item for item in render() if item["kind"] == "ServiceMonitor"]


def test_the_stores_metrics_are_found_by_prometheus(render: Any) -> None:
    values = {"metrics": {"podMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prom"}}}}
    (monitor,) = [item for item in render(values) if item["kind"] == "PodMonitor"]
    assert monitor["metadata"]["labels"]["release"] == "prom"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= owned_resources.store_labels("main").items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["interval"]) == (metrics_container.PORT_NAME, "15s")
    assert {"targetLabel": "job", "replacement": "entrepot"} in endpoint["relabelings"]  # as the alerts expect
    assert not [item for item in render() if item["kind"] == "PodMonitor"]


def test_network_policies_let_through_what_is_needed(render: Any) -> None:
    values = {
        "networkPolicy": {
            "enabled": True,
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
            "extraEgress": [{"ports": [{"port": 3128, "protocol": "TCP"}]}],
        }
    }
    rendered = render(values)
    policies = {item["metadata"]["name"]: item["spec"] for item in rendered if item["kind"] == "NetworkPolicy"}
    pod = operator_of(rendered)["spec"]["template"]
    own = policies["entrepot-operator"]
    assert own["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    named = {item["name"] for item in pod["spec"]["containers"][0]["ports"]}
    assert {item["port"] for rule in own["ingress"] for item in rule["ports"]} == named
    assert [rule.get("from") for rule in own["ingress"]] == [None, values["networkPolicy"]["metricsFrom"]]
    assert [item["port"] for rule in own["egress"] for item in rule["ports"]] == [443, 6443, 3128]
    stores = policies["entrepot-stores"]
    assert stores["podSelector"]["matchLabels"].items() <= owned_resources.store_labels("main").items()
    assert stores["policyTypes"] == ["Ingress"]
    gateways, metrics = stores["ingress"]
    assert gateways["ports"] == [{"port": gateway_container.PORT_NAME, "protocol": "TCP"}]  # from each other
    assert metrics == {
        "ports": [{"port": metrics_container.PORT_NAME, "protocol": "TCP"}],
        "from": values["networkPolicy"]["metricsFrom"],
    }
    (others,) = gateways["from"]
    assert others["podSelector"]["matchLabels"].items() <= owned_resources.store_labels("main").items()
    alone = render({**values, "webhook": {"enabled": False}})
    (own,) = [item for item in alone if key(item) == "NetworkPolicy/entrepot-system/entrepot-operator"]
    assert [item["port"] for rule in own["spec"]["ingress"] for item in rule["ports"]] == ["metrics"]


def test_two_installations_have_nothing_in_common(render: Any) -> None:
    first = by_key(render({"podNamespaces": ["a"]}, namespace="blue"))
    second = by_key(render({"podNamespaces": ["b"]}, namespace="green"))
    assert not first.keys() & second.keys()
    for manifests in (first, second):
        for item in manifests.values():
            if item["kind"] in ("ClusterRoleBinding", "RoleBinding"):
                role = item["roleRef"]
                where = item["metadata"].get("namespace", "") if role["kind"] == "Role" else ""
                assert f"{role['kind']}/{where}/{role['name']}" in manifests
    roles = [first["ClusterRole//entrepot-blue-webhook"], second["ClusterRole//entrepot-green-webhook"]]
    assert [item["rules"][0]["resourceNames"] for item in roles] == [
        ["entrepot-blue-webhook"],
        ["entrepot-green-webhook"],
    ]
    managers = {Settings(item, "x").label_manager for item in ("blue", "green")}
    assert len(managers) == 2, "each takes its own label off a node, and not the other's"


def test_nobody_owns_the_crds(render: Any) -> None:
    """Helm creates what is missing of crds/, but never changes or removes it, so releases cannot conflict over CRDs."""
    assert not [manifest for manifest in render() if manifest["kind"] == "CustomResourceDefinition"]


@pytest.mark.parametrize(
    ("theirs", "ours", "both"),
    [
        ("*", [], "all namespaces"),
        ("*", ["team-a"], "team-a"),
        ("team-a,team-b", [], "team-a, team-b"),
        ("team-a,team-b", ["team-b", "team-c"], "team-b"),
    ],
)
def test_two_installations_for_the_same_pods_are_refused(render: Any, theirs: str, ours: list[str], both: str) -> None:
    existing = {"Deployment": [_deployment("blue", theirs)]}
    with pytest.raises(ValueError, match=f"namespace blue already manages pods of {both}: .*podNamespaces"):
        render({"podNamespaces": ours}, namespace="green", existing=existing)
    off = {"gates": {"enabled": False}, "webhook": {"enabled": False}}
    assert (
        "annotations"
        not in operator_of(render({"podNamespaces": ours, **off}, namespace="green", existing=existing))["metadata"]
    )


def test_others_and_the_release_itself_are_no_hindrance(render: Any) -> None:
    existing = {"Deployment": [_deployment("blue", "*"), _deployment("red", "team-a"), _deployment("shop", None)]}
    with pytest.raises(ValueError, match="namespace red"):
        render(namespace="blue", existing=existing)
    existing = {"Deployment": [_deployment("blue", "*"), _deployment("shop", None)]}
    rendered = render(namespace="blue", existing=existing)
    assert operator_of(rendered)["metadata"]["annotations"] == {"entrepot.dev/pod-namespaces": "*"}
    assert render({"podNamespaces": ["b"]}, namespace="green", existing={"Deployment": [_deployment("blue", "a")]})


def _deployment(namespace: str, pods: str | None) -> Any:
    metadata: dict[str, Any] = {"namespace": namespace, "name": "x"}
    if pods is not None:
        metadata["annotations"] = {"entrepot.dev/pod-namespaces": pods}
    return {"metadata": metadata}


@pytest.mark.parametrize(
    "values",
    [
        {"gates": {"enabled": "no"}},
        {"podNamespaces": ["a", "a"]},
        {"podNamespaces": ["Team"]},
        {"operator": {"extraEnv": [{"value": "x"}]}},
        {"operator": {"podAnnotations": {"x": 1}}},
        {"operator": {"serviceAccount": {"name": "x"}}},
        {"metrics": {"serviceMonitor": {"interval": "often"}}},
        {"metrics": {"podMonitor": {"interval": "often"}}},
        {"networkPolicy": {"apiServerPorts": []}},
    ],
)
def test_wrong_values_are_refused(render: Any, values: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        render(values)
