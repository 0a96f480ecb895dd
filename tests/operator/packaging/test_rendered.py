"""What the chart installs, depending on its values, rendered by the template engine that Helm uses."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from entrepot_operator import installing
from entrepot_operator.controller import children
from entrepot_operator.controller.commands import add_verb
from entrepot_operator.controller.settings import Settings

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


def key(one: Any) -> str:
    return f"{one['kind']}/{one['metadata'].get('namespace', '')}/{one['metadata']['name']}"


def by_key(found: list[Any]) -> dict[str, Any]:
    made = {key(one): one for one in found}
    assert len(made) == len(found)
    return made


def plain(one: Any) -> Any:
    """An object with only those labels that the manifests have too."""
    if isinstance(one, dict):
        return {
            name: {label: text for label, text in each.items() if label in OURS} if name == "labels" else plain(each)
            for name, each in one.items()
        }
    return [plain(each) for each in one] if isinstance(one, list) else one


def pod_rules(found: list[Any]) -> list[Any]:
    """Rules about pods in cluster roles."""
    return [
        rule
        for one in found
        if one["kind"] == "ClusterRole"
        for rule in one["rules"]
        if any(each.startswith("pods") for each in rule["resources"])
    ]


def operator_of(found: list[Any]) -> Any:
    (one,) = [each for each in found if each["kind"] == "Deployment"]
    return one


def arguments_of(found: list[Any]) -> list[str]:
    listed: list[str] = operator_of(found)["spec"]["template"]["spec"]["containers"][0]["args"]
    return listed


def settings_of(found: list[Any]) -> Any:
    """The operator's arguments as parsed by its command line."""
    import argparse

    parser = argparse.ArgumentParser()
    add_verb(parser.add_subparsers())
    return parser.parse_args(arguments_of(found))


def test_by_default_it_installs_what_the_manifests_do(render: Any) -> None:
    for namespace in (installing.NAMESPACE, "stores"):
        made = by_key(render(namespace=namespace))
        manifests = by_key(
            [
                one
                for one in installing.objects(namespace=namespace)
                if one["kind"] not in ("Namespace", "CustomResourceDefinition")
            ]
        )
        assert made.keys() == manifests.keys()
        for name, one in manifests.items():
            assert plain(made[name]) == one, name


def test_all_has_the_standard_labels(render: Any) -> None:
    everything = {
        "store": {"create": True},
        "metrics": {"serviceMonitor": {"enabled": True}},
        "networkPolicy": {"enabled": True},
        "webhook": {"certManager": {"enabled": True, "issuerRef": {"name": "ours"}}},
        "podNamespaces": ["team"],
    }
    found = render(everything, release="blue")
    assert len(found) > 20
    for one in [*found, operator_of(found)["spec"]["template"] | {"kind": "pod"}]:
        labels = one["metadata"]["labels"]
        assert set(labels) == STANDARD, one["kind"]
        assert (labels["app.kubernetes.io/instance"], labels["app.kubernetes.io/part-of"]) == ("blue", "entrepot")
        assert labels["helm.sh/chart"] == f"entrepot-{installing.IMAGE.partition(':')[2]}"


def test_what_selects_the_operator_can_stay_for_ever(render: Any) -> None:
    """A Deployment's selector is immutable, so it must not contain the version."""
    spec = operator_of(render())["spec"]
    assert set(spec["selector"]["matchLabels"]) == OURS
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_without_gates_there_are_no_rights_on_pods_elsewhere(render: Any) -> None:
    found = render({"gates": {"enabled": False}})
    assert pod_rules(found) == []
    assert not [one for one in found if one["metadata"]["name"].endswith("-gates")]
    (own,) = [one for one in found if one["kind"] == "Role" and one["metadata"]["name"] == "entrepot-operator"]
    assert [rule["verbs"] for rule in own["rules"] if rule["resources"] == ["pods"]] == [["list", "watch"]]
    assert settings_of(found).no_gates


def test_gates_need_to_see_pods_and_to_take_the_gate_off(render: Any) -> None:
    found = render()
    assert pod_rules(found) == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]}]
    # A patch could change any field of a pod; therefore a denying policy is bound along with the role.
    made = by_key(found)
    policy = made["ValidatingAdmissionPolicy//entrepot-gates"]["spec"]
    assert (policy["failurePolicy"], policy["matchConstraints"]["resourceRules"][0]["operations"]) == (
        "Fail",
        ["UPDATE"],
    )
    binding = made["ValidatingAdmissionPolicyBinding//entrepot-gates"]["spec"]
    assert binding == {"policyName": "entrepot-gates", "validationActions": ["Deny"]}


def test_the_policy_is_about_the_operator_of_its_installation(render: Any) -> None:
    made = by_key(render(namespace="blue"))
    (condition,) = made["ValidatingAdmissionPolicy//entrepot-blue-gates"]["spec"]["matchConditions"]
    assert "'system:serviceaccount:blue:entrepot-operator'" in condition["expression"]


def test_gates_of_some_namespaces_are_bound_there_alone(render: Any) -> None:
    found = render({"podNamespaces": ["team-a", "team-b"]})
    bound = [one for one in found if "Binding" in one["kind"] and one["metadata"]["name"] == "entrepot-gates"]
    kinds = [(one["kind"], one["metadata"].get("namespace")) for one in bound if "Policy" not in one["kind"]]
    assert kinds == [("RoleBinding", "team-a"), ("RoleBinding", "team-b")]
    for one in bound:
        if one["kind"] == "RoleBinding":
            assert one["roleRef"]["name"] == "entrepot-gates"
            assert one["subjects"][0]["namespace"] == installing.NAMESPACE
    assert settings_of(found).gates_namespace == ["team-a", "team-b"]


def test_webhook_and_annotations_keep_to_the_same_namespaces(render: Any) -> None:
    only = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-a", "team-b"]}
    made = by_key(render({"podNamespaces": ["team-a", "team-b"]}))
    for one in made["MutatingWebhookConfiguration//entrepot-webhook"]["webhooks"]:
        assert only in one["namespaceSelector"]["matchExpressions"]
    policy = made["ValidatingAdmissionPolicy//entrepot-annotations"]["spec"]["matchConstraints"]
    assert policy["namespaceSelector"] == {"matchExpressions": [only]}
    made = by_key(render())
    assert (
        "namespaceSelector" not in made["ValidatingAdmissionPolicy//entrepot-annotations"]["spec"]["matchConstraints"]
    )
    for one in made["MutatingWebhookConfiguration//entrepot-webhook"]["webhooks"]:
        said = one["namespaceSelector"]["matchExpressions"]
        assert [each["operator"] for each in said if each["key"] == only["key"]] == ["NotIn"], "all namespaces"


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_node_can_be_drained_whatever_the_number_of_replicas(render: Any, replicas: int) -> None:
    found = render({"operator": {"replicas": replicas}})
    (budget,) = [one for one in found if one["kind"] == "PodDisruptionBudget"]
    spec = budget["spec"]
    allowed = spec["maxUnavailable"] if "maxUnavailable" in spec else replicas - spec["minAvailable"]
    assert allowed >= 1
    assert operator_of(found)["spec"]["replicas"] == replicas


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
    found = render(values)
    made, pod = by_key(found), operator_of(found)["spec"]["template"]
    assert pod["spec"]["affinity"] == affinity
    assert pod["metadata"]["annotations"] == {"team": "data", "scrape": "true"}
    assert [one["name"] for one in pod["spec"]["containers"][0]["env"]] == ["POD_NAME", "POD_IP", "HTTPS_PROXY"]
    accounts = [made[f"ServiceAccount/entrepot-system/entrepot-{one}"] for one in ("operator", "publisher")]
    assert [one["metadata"]["annotations"] for one in accounts] == [{"role": "arn:x"}, {"role": "arn:y"}]
    default = operator_of(render())["spec"]["template"]
    assert "podAntiAffinity" in default["spec"]["affinity"]
    assert "annotations" not in default["metadata"]


def test_numbers_are_found_by_prometheus(render: Any) -> None:
    values = {"metrics": {"serviceMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prom"}}}}
    found = render(values, release="blue")
    made = by_key(found)
    monitor, service = (made[f"{one}/entrepot-system/entrepot-operator{end}"] for one, end in
                        (("ServiceMonitor", ""), ("Service", "-metrics")))  # fmt: skip
    assert monitor["metadata"]["labels"]["release"] == "prom"
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["endpoints"]
    (port,) = service["spec"]["ports"]
    container = operator_of(found)["spec"]["template"]["spec"]["containers"][0]
    assert endpoint == {"port": port["name"], "path": "/metrics", "interval": "15s"}
    assert port["targetPort"] in [one["name"] for one in container["ports"]]
    labels = operator_of(found)["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    # The webhook's Service has other labels, so that its port is not scraped for metrics.
    webhook = made["Service/entrepot-system/entrepot-webhook"]["metadata"]["labels"]
    assert not monitor["spec"]["selector"]["matchLabels"].items() <= webhook.items()
    assert not [one for one in render() if one["kind"] == "ServiceMonitor"]


def test_network_policies_let_through_what_is_needed(render: Any) -> None:
    values = {
        "networkPolicy": {
            "enabled": True,
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
            "extraEgress": [{"ports": [{"port": 3128, "protocol": "TCP"}]}],
        }
    }
    found = render(values)
    policies = {one["metadata"]["name"]: one["spec"] for one in found if one["kind"] == "NetworkPolicy"}
    pod = operator_of(found)["spec"]["template"]
    own = policies["entrepot-operator"]
    assert own["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    named = {one["name"] for one in pod["spec"]["containers"][0]["ports"]}
    assert {one["port"] for rule in own["ingress"] for one in rule["ports"]} == named
    assert [rule.get("from") for rule in own["ingress"]] == [None, values["networkPolicy"]["metricsFrom"]]
    assert [one["port"] for rule in own["egress"] for one in rule["ports"]] == [443, 6443, 3128]
    stores = policies["entrepot-stores"]
    assert stores["podSelector"]["matchLabels"].items() <= children.labels_of("main").items()
    assert (stores["policyTypes"], stores["ingress"]) == (["Ingress"], [])
    alone = render({**values, "webhook": {"enabled": False}})
    (own,) = [one for one in alone if key(one) == "NetworkPolicy/entrepot-system/entrepot-operator"]
    assert [one["port"] for rule in own["spec"]["ingress"] for one in rule["ports"]] == ["metrics"]


def test_two_installations_have_nothing_in_common(render: Any) -> None:
    first = by_key(render({"podNamespaces": ["a"]}, namespace="blue"))
    second = by_key(render({"podNamespaces": ["b"]}, namespace="green"))
    assert not first.keys() & second.keys()
    for made in (first, second):
        for one in made.values():
            if one["kind"] in ("ClusterRoleBinding", "RoleBinding"):
                role = one["roleRef"]
                where = one["metadata"].get("namespace", "") if role["kind"] == "Role" else ""
                assert f"{role['kind']}/{where}/{role['name']}" in made
    roles = [first["ClusterRole//entrepot-blue-webhook"], second["ClusterRole//entrepot-green-webhook"]]
    assert [one["rules"][0]["resourceNames"] for one in roles] == [
        ["entrepot-blue-webhook"],
        ["entrepot-green-webhook"],
    ]
    managers = {Settings(one, "x").manager_of_labels for one in ("blue", "green")}
    assert len(managers) == 2, "each takes its own label off a node, and not the other's"


def test_nobody_owns_the_crds(render: Any) -> None:
    """Helm creates what is missing of crds/, but never changes or removes it, so releases cannot conflict over CRDs."""
    assert not [one for one in render() if one["kind"] == "CustomResourceDefinition"]


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
    there = {"Deployment": [_deployment("blue", theirs)]}
    with pytest.raises(ValueError, match=f"namespace blue already looks after pods of {both}: .*podNamespaces"):
        render({"podNamespaces": ours}, namespace="green", there=there)
    off = {"gates": {"enabled": False}, "webhook": {"enabled": False}}
    assert (
        "annotations"
        not in operator_of(render({"podNamespaces": ours, **off}, namespace="green", there=there))["metadata"]
    )


def test_others_and_the_release_itself_are_no_hindrance(render: Any) -> None:
    there = {"Deployment": [_deployment("blue", "*"), _deployment("red", "team-a"), _deployment("shop", None)]}
    with pytest.raises(ValueError, match="namespace red"):
        render(namespace="blue", there=there)
    there = {"Deployment": [_deployment("blue", "*"), _deployment("shop", None)]}
    found = render(namespace="blue", there=there)
    assert operator_of(found)["metadata"]["annotations"] == {"entrepot.dev/pod-namespaces": "*"}
    assert render({"podNamespaces": ["b"]}, namespace="green", there={"Deployment": [_deployment("blue", "a")]})


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
        {"networkPolicy": {"apiServerPorts": []}},
    ],
)
def test_wrong_values_are_refused(render: Any, values: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        render(values)
