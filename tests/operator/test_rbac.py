"""The shipped roles grant what is needed and no more; tested with tokens of their accounts on a real API server."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import entrepot
import entrepot_operator
import numpy as np
import pytest
import yaml
from entrepot.errors import AccessDenied
from entrepot_operator import install_manifests
from entrepot_operator.controller.state.gates import gate_removal_patch
from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.credentials import find
from entrepot_operator.kubernetes.locations import read_cluster_locations
from entrepot_operator.kubernetes.objects import resource_path
from entrepot_operator.publisher.limits import Limits
from entrepot_operator.publisher.main import Publisher
from entrepot_operator.publisher.snapshot import PublisherIdentity

MANIFESTS = Path(entrepot_operator.__file__).with_name("manifests")
SYSTEM = "entrepot-system"
NODES = ("rights-a", "rights-b")


@pytest.fixture(scope="module")
def cluster(entrepot_cluster: Any) -> Iterator[Any]:
    """The cluster with two nodes, and the publisher's and reader's manifests as shipped."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}}
    entrepot_cluster.apply(f"/api/v1/namespaces/{SYSTEM}", namespace)
    for folder in ("publisher", "reader"):
        for path in (MANIFESTS / folder).glob("*.yaml"):
            if path.name != "kustomization.yaml":
                for manifest in yaml.safe_load_all(path.read_text()):
                    entrepot_cluster.apply(entrepot_cluster.path_of(manifest), manifest)
    with entrepot_cluster.some_nodes({name: {} for name in NODES}):
        yield entrepot_cluster


def api_of(cluster: Any, account: str, namespace: str, node: str | None = None) -> Api:
    """An API client with the token of a pod of this account on this node; None: with a token of no pod."""
    if node is None:
        return Api(find(str(cluster.kubeconfig_of(namespace, account))))
    pods = f"/api/v1/namespaces/{namespace}/pods"
    created = cluster.request(
        "POST",
        pods,
        {
            "metadata": {"generateName": f"{account}-"},
            "spec": {
                "serviceAccountName": account,
                "nodeSelector": {"kubernetes.io/hostname": node},
                "containers": [{"name": "publisher", "image": "none"}],
            },
        },
    )
    name = created["metadata"]["name"]
    assert cluster.bound(namespace, [name]) == {name: node}
    return Api(find(str(cluster.kubeconfig_of(namespace, account, pod=created))))


@pytest.fixture
def publisher(cluster: Any, daemon: Any) -> Iterator[Callable[[Api, str], Publisher]]:
    publishers: list[Publisher] = []

    def make(api: Api, node: str) -> Publisher:
        connect = lambda: entrepot.connect(daemon.address)  # noqa: E731
        publishers.append(Publisher(api, connect, PublisherIdentity(node, "main"), SYSTEM, Limits(burst=1000)))
        return publishers[-1]

    yield make
    for each in publishers:
        each.close()


def test_a_publisher_can_do_its_work(cluster: Any, publisher: Any, daemon: Any) -> None:
    running = publisher(api_of(cluster, "entrepot-publisher", SYSTEM, "rights-a"), "rights-a")
    with entrepot.connect(daemon.address) as store:
        oid = store.put(np.zeros(1000), name="one")
        builder = store.collection("shards")
        builder.append(np.zeros(10))
        shards = builder.seal()
        assert running.publish_all(60).refused == 0
        store.delete(shards.id)
        store.set_name("again", oid)
        assert running.publish_all(60).refused == 0
        (resource,) = cluster.listed(resource_path("localobjects", SYSTEM))
        assert resource["spec"]["names"] == ["again", "one"]
        assert resource["status"]["state"] == "InMemory"
        (lease,) = [
            each
            for each in cluster.listed(f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases")
            if each["metadata"]["name"] == resource["spec"]["lease"]
        ]
        assert [each["kind"] for each in lease["metadata"]["ownerReferences"]] == ["Node"]
        store.delete(oid)
        running.publish_all(60)
        assert cluster.listed(resource_path("localobjects", SYSTEM)) == []


def test_a_publisher_tells_of_no_other_node(cluster: Any, publisher: Any, daemon: Any, wait_until: Any) -> None:
    running = publisher(api_of(cluster, "entrepot-publisher", SYSTEM, "rights-a"), "rights-b")

    messages: list[str] = []
    tries = itertools.count()

    def refused() -> bool:
        """It takes a moment until the policy is in force."""
        try:
            running.publish_all(60)
        except AccessDenied as error:
            messages.append(str(error))
            return True
        store.set_name(f"try {next(tries)}", oid)  # so that there is something to publish
        return False

    with entrepot.connect(daemon.address) as store:
        oid = store.put(b"1", name="one")
        wait_until(refused, "the policy to be in force")
    assert "publisher of node rights-a may not write objects of node rights-b" in messages[0]


def test_a_token_of_no_node_publishes_nothing(cluster: Any, publisher: Any, daemon: Any) -> None:
    running = publisher(api_of(cluster, "entrepot-publisher", SYSTEM), "rights-a")
    with entrepot.connect(daemon.address) as store:
        store.put(b"1", name="one")
        with pytest.raises(AccessDenied, match="names no node"):
            running.publish_all(60)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/entrepot-system/secrets",
        "/api/v1/nodes",
        "/api/v1/pods",
        "/apis/entrepot.dev/v1alpha1/namespaces/default/localobjects",
        "/apis/entrepot.dev/v1alpha1/namespaces/entrepot-system/stores",
        "/apis/coordination.k8s.io/v1/namespaces/entrepot-system/leases",
    ],
)
def test_a_publisher_may_not_look_at(cluster: Any, path: str) -> None:
    with pytest.raises(AccessDenied, match="forbidden"):
        api_of(cluster, "entrepot-publisher", SYSTEM).read_all(path)


def test_a_reader_reads_all_that_injecting_needs_and_nothing_else(cluster: Any) -> None:
    namespace = cluster.namespace()
    subject = {"kind": "ServiceAccount", "name": "default", "namespace": namespace}
    name = f"reader-{namespace}"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "entrepot-reader"},
        "subjects": [subject],
    }
    api = api_of(cluster, "default", namespace)
    with pytest.raises(AccessDenied):
        read_cluster_locations(api)
    cluster.apply(cluster.path_of(binding), binding)

    def allowed() -> bool:
        try:
            return set(NODES) <= set(read_cluster_locations(api).nodes or ())
        except AccessDenied:
            return False

    cluster.wait(allowed, "the role to be in force")
    with pytest.raises(AccessDenied):
        api.read_all("/api/v1/secrets")
    with pytest.raises(AccessDenied):
        api.delete(resource_path("localobjects", SYSTEM, "x"))


GATE = "entrepot.dev/objects"
Steps = list[dict[str, Any]]
IMAGE: Steps = [{"op": "replace", "path": "/spec/containers/0/image", "value": "other"}]
NODE = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
AFFINITY: Steps = [
    {
        "op": "add",
        "path": "/spec/affinity",
        "value": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [NODE]}}},
    },
    {"op": "add", "path": "/metadata/annotations/entrepot.dev~1injected", "value": "{}"},
]


def operator_of(cluster: Any, *parts: str) -> Api:
    """An API client for an operator with these parts of the manifests, in a new namespace."""
    namespace = str(cluster.namespace("operator"))
    for part in parts:
        for manifest in install_manifests.objects(namespace=namespace, only=part):
            if manifest["kind"] not in ("Deployment", "PodDisruptionBudget"):
                cluster.apply(cluster.path_of(manifest), manifest)
    return api_of(cluster, "entrepot-operator", namespace)


def pod_of(cluster: Any, namespace: str, *gates: str) -> str:
    """Create a pod with these gates that fits no node; returns its path."""
    created = cluster.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/pods",
        {
            "metadata": {"generateName": "held-", "annotations": {"entrepot.dev/requires": "none", "note": "1"}},
            "spec": {
                "nodeSelector": {"nowhere": "1"},
                "schedulingGates": [{"name": gate} for gate in gates],
                "containers": [{"name": "main", "image": "none"}],
            },
        },
    )
    return f"/api/v1/namespaces/{namespace}/pods/{created['metadata']['name']}"


def test_the_operator_takes_its_gate_off_pods_and_changes_nothing_else(cluster: Any) -> None:
    api, team = operator_of(cluster, "operator", "gates"), str(cluster.namespace("team"))
    free, gated, other = (pod_of(cluster, team, *gates) for gates in ((), (GATE, "else"), ("else",)))

    def refused() -> bool:
        """It takes a moment until the role and the policy are in force."""
        try:
            api.json_patch(free, [{"op": "add", "path": "/metadata/annotations/seen", "value": "1"}])
        except AccessDenied as error:
            return "the operator may change only pods that have its gate" in str(error)
        return False

    cluster.wait(refused, "the policy to be in force")
    gates = "/spec/schedulingGates"
    label = {"op": "add", "path": "/metadata/labels", "value": {"app": "other"}}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}
    forbidden: list[tuple[str, Steps, str]] = [
        (free, IMAGE, "only pods that have its gate"),
        (other, [{"op": "remove", "path": f"{gates}/0"}], "only pods that have its gate"),
        (gated, IMAGE, "remove only its own gate|only its gate and the affinity"),
        (gated, [*IMAGE, *gate_removal_patch(api.get(gated))], "only its gate and the affinity"),
        (gated, [{"op": "replace", "path": gates, "value": []}], "remove only its own gate"),
        (gated, [{"op": "remove", "path": f"{gates}/1"}], "remove only its own gate"),
        (gated, [*gate_removal_patch(api.get(gated)), label], "annotation entrepot.dev/injected"),
        (
            gated,
            [*gate_removal_patch(api.get(gated)), {**label, "path": "/metadata/ownerReferences", "value": [owner]}],
            "injected",
        ),
        (
            gated,
            [*gate_removal_patch(api.get(gated)), {"op": "remove", "path": "/metadata/annotations/note"}],
            "injected",
        ),
        (
            gated,
            [*gate_removal_patch(api.get(gated)), {**label, "path": "/metadata/annotations/note", "value": "2"}],
            "injected",
        ),
    ]
    for path, steps, match in forbidden:
        with pytest.raises(AccessDenied, match=match):
            api.json_patch(path, steps)
    lifted = api.json_patch(gated, [*AFFINITY, *gate_removal_patch(api.get(gated))])
    assert lifted["spec"]["schedulingGates"] == [{"name": "else"}]
    assert "nodeAffinity" in lifted["spec"]["affinity"]
    with pytest.raises(AccessDenied, match="delete"):
        api.delete(gated)


def test_an_operator_without_gates_cannot_touch_pods_of_others(cluster: Any) -> None:
    api, team = operator_of(cluster, "operator"), str(cluster.namespace("team"))
    gated = pod_of(cluster, team, GATE)
    cluster.wait(lambda: _may_list_nodes(api), "the role to be in force")
    for ask in (
        lambda: api.read_all("/api/v1/pods"),
        lambda: api.get(gated),
        lambda: api.json_patch(gated, [{"op": "remove", "path": "/spec/schedulingGates/0"}]),
        lambda: api.create(f"/api/v1/namespaces/{team}/events", {"metadata": {"name": "x"}}),
    ):
        with pytest.raises(AccessDenied, match="forbidden"):
            ask()


def _may_list_nodes(api: Api) -> bool:
    try:
        api.read_all("/api/v1/nodes")
    except AccessDenied:
        return False
    return True
