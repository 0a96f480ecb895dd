"""The webhook called by a real API server, for pods created by real controllers and placed by the real scheduler."""

from __future__ import annotations

import base64
import dataclasses
import http.client
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import yaml
from entrepot.errors import AccessDenied, InvalidArgument
from entrepot_operator import install_manifests
from entrepot_operator.kubernetes.api import Api
from entrepot_operator.kubernetes.credentials import ClusterCredentials, find
from entrepot_operator.placement import Node
from entrepot_operator.webhook import Settings, Webhook, serve
from entrepot_operator.webhook.certificate_store import SharedCertificates
from entrepot_operator.webhook.certificates import Lifetimes

A, B, C = ("aa" * 20, "bb" * 20, "cc" * 20)
NODES = ("hook-a", "hook-b")
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


class FakeClusterView:
    """Locations controlled by the test; at first A is on the first node, B on the second."""

    def __init__(self) -> None:
        self.synced = True
        self.hang: threading.Event | None = None
        self.object_locations: Any = {A: {NODES[0]: 1 << 30}, B: {NODES[1]: 1 << 30}}

    def locations(self, ids: Any) -> Any:
        if self.hang is not None:
            self.hang.wait(20)
        return {object_id: self.object_locations[object_id] for object_id in ids if object_id in self.object_locations}

    def nodes(self) -> Any:
        return {name: Node({"kubernetes.io/hostname": name}) for name in NODES}


class WebhookCluster:
    """A cluster with the webhook's shipped manifests, renamed for this module, and a running webhook.

    Attributes:
        system: the operator's namespace.
        team: a namespace whose pods the webhook sees.
        strict: such a namespace in which hostPath volumes are forbidden.
    """

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.system, self.team, self.strict = (
            cluster.namespace(item) for item in ("hook-system", "hook", "hook-strict")
        )
        for name, label in ((self.team, {}), (self.strict, {"pod-security.kubernetes.io/enforce": "restricted"})):
            self.change(f"/api/v1/namespaces/{name}", {"metadata": {"labels": {"hook-test": self.system, **label}}})
        self.cluster_view = FakeClusterView()
        self.name = f"{install_manifests.installation_prefix(self.system)}-webhook"
        text = install_manifests.text(namespace=self.system, only="webhook")
        self.manifests: list[Any] = list(yaml.safe_load_all(text))
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "entrepot-operator"}}
        cluster.apply(f"/api/v1/namespaces/{self.system}/serviceaccounts/entrepot-operator", account)
        self.webhook = self.start()
        for item in self.manifests:
            cluster.apply(cluster.path_of(item), self.localize(item))
        self.wait_live()

    def access(self) -> ClusterCredentials:
        """Access as the operator in the cluster has it: with the rights of the shipped manifests and no others."""
        return find(str(self.cluster.kubeconfig_of(self.system, "entrepot-operator")))

    def settings(self, port: int = 0) -> Settings:
        return Settings(
            self.system,
            host="127.0.0.1",
            port=port,
            names=("127.0.0.1",),
            refresh_seconds=0.2,
        )

    def start(self, port: int = 0, lifetimes: Lifetimes | None = None) -> Webhook:
        return serve(self.cluster_view, self.access(), self.settings(port), lifetimes=lifetimes)

    def localize(self, manifest: Any) -> Any:
        """Change a manifest so that it calls the webhook on loopback, and only for this module's namespaces."""
        label = {"key": "hook-test", "operator": "In", "values": [self.system]}
        if manifest["kind"] == "MutatingWebhookConfiguration":
            for webhook in manifest["webhooks"]:
                path = webhook["clientConfig"].pop("service")["path"]
                webhook["clientConfig"]["url"] = f"https://127.0.0.1:{self.webhook.port}{path}"
                webhook["namespaceSelector"]["matchExpressions"].append(label)
        if manifest["kind"] == "ValidatingAdmissionPolicy":
            manifest["spec"]["matchConstraints"]["namespaceSelector"] = {"matchExpressions": [label]}
        return manifest

    def change(self, path: str, body: Any) -> None:
        self.cluster.request("PATCH", path, body, kind="application/merge-patch+json")

    def create(self, body: Any, namespace: str | None = None, *, dry_run: bool = False) -> tuple[Any, list[str]]:
        """Create a resource; returns it and the warnings in the response."""
        parts = urllib.parse.urlsplit(self.cluster.server)
        context = ssl.create_default_context(cafile=str(self.cluster.ca))
        context.load_cert_chain(self.cluster.keys / "admin.crt", self.cluster.keys / "admin.key")
        assert parts.hostname is not None
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=30, context=context)
        path = self.cluster.path_of({**body, "metadata": {}}, namespace or self.team) + (
            "?dryRun=All" if dry_run else ""
        )
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        created = json.loads(answer.read())
        warnings = [value for key, value in answer.getheaders() if key.lower() == "warning"]
        connection.close()
        assert answer.status == 201, created
        return created, warnings

    def is_injecting(self) -> bool:
        created, _ = self.create(pod(requires=A), dry_run=True)
        return "affinity" in created["spec"]

    def wait_live(self) -> None:
        self.cluster.wait(self.is_injecting, f"the webhook to be called ({self.webhook.readiness_problems()})", 60)

    def close(self) -> None:
        self.webhook.close()
        for manifest in self.manifests:
            if not manifest["metadata"].get("namespace"):
                self.cluster.request("DELETE", self.cluster.path_of(manifest))


def template(restart: str | None = None, **annotations: str) -> Any:
    prefixed = {f"entrepot.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    spec: Any = {"containers": [{"name": "main", "image": "none"}]}
    if restart:
        spec["restartPolicy"] = restart
    return {"metadata": {"labels": {"app": "x"}, "annotations": prefixed}, "spec": spec}


def pod(labels: Any = None, **annotations: str) -> Any:
    pod_template = template(**annotations)
    metadata = {**pod_template["metadata"], "labels": labels or {}, "generateName": "p-"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_template["spec"]}


def job(name: str, completions: int, **annotations: str) -> Any:
    spec = {"completionMode": "Indexed", "completions": completions, "parallelism": completions}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {**spec, "template": template("Never", **annotations)},
    }


@pytest.fixture(scope="module")
def site(entrepot_cluster: Any) -> Iterator[WebhookCluster]:
    with entrepot_cluster.some_nodes({name: {} for name in NODES}):
        running = WebhookCluster(entrepot_cluster)
        yield running
        running.close()


@pytest.fixture(autouse=True)
def as_it_was(site: WebhookCluster) -> Iterator[None]:
    yield
    site.cluster_view.synced, site.cluster_view.hang = True, None


def placed(site: WebhookCluster, namespace: str, labels: str, count: int) -> dict[str, str]:
    """Nodes by name of the pods that a controller creates."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    site.cluster.wait(lambda: len(site.cluster.listed(path, labelSelector=labels)) >= count, f"{count} pods", 30)
    names = [resource["metadata"]["name"] for resource in site.cluster.listed(path, labelSelector=labels)]
    return dict(site.cluster.bound(namespace, names))


@pytest.mark.parametrize(("oid", "node"), [(A, NODES[0]), (B, NODES[1])])
def test_a_pod_lands_where_its_input_is(site: WebhookCluster, oid: str, node: str) -> None:
    created, warnings = site.create(pod(requires=oid))
    assert warnings == []
    assert "entrepot.dev/injected" in created["metadata"]["annotations"]
    assert "/run/entrepot" in [mount["mountPath"] for mount in created["spec"]["containers"][0]["volumeMounts"]]
    name = created["metadata"]["name"]
    assert site.cluster.bound(site.team, [name]) == {name: node}


def test_each_pod_of_an_indexed_job_lands_where_its_part_is(site: WebhookCluster) -> None:
    site.create(job("parts", 2, partitioned=f"{B},{A}"))
    nodes = placed(site, site.team, "job-name=parts", 2)
    assert {name.split("-")[1]: node for name, node in nodes.items()} == {"0": NODES[1], "1": NODES[0]}


def test_each_pod_of_a_stateful_set_lands_where_its_part_is(site: WebhookCluster) -> None:
    spec: Any = {
        "serviceName": "x",
        "replicas": 2,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": "set"}},
        "template": template(partitioned=f"{A},{B}"),
    }
    spec["template"]["metadata"]["labels"] = {"app": "set"}
    site.create({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "set"}, "spec": spec})
    assert placed(site, site.team, "app=set", 2) == {"set-0": NODES[0], "set-1": NODES[1]}
    site.cluster.request("DELETE", f"/apis/apps/v1/namespaces/{site.team}/statefulsets/set")


def test_where_host_paths_are_forbidden_a_pod_is_drawn_and_taken(site: WebhookCluster) -> None:
    manifest = pod(requires=A)
    safe = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    manifest["spec"]["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    manifest["spec"]["containers"][0]["securityContext"] = safe
    created, warnings = site.create(manifest, site.strict)
    assert "hostPath" not in str(created["spec"])
    assert "affinity" in created["spec"]
    assert "hostPath volumes are forbidden" in warnings[0]


def test_pods_without_annotations_do_not_reach_the_webhook(site: WebhookCluster) -> None:
    before = site.webhook.counters.results()
    off = {"entrepot.dev/webhook": "off"}
    others = [pod(), pod(off, requires=A)]
    created = [site.create(item)[0] for item in others]
    created.append(site.create(pod(requires=A), "kube-system", dry_run=True)[0])
    created.append(site.create(pod(requires=A), site.system, dry_run=True)[0])
    assert not any("affinity" in item["spec"] for item in created)
    assert site.webhook.counters.results() == before


def test_what_is_not_known_leaves_the_pod_as_it_is_with_a_warning(site: WebhookCluster) -> None:
    site.cluster_view.synced = False
    created, warnings = site.create(pod(requires=A))
    assert ("affinity" in created["spec"], "volumes" in created["spec"]) == (
        False,
        True,
    )  # the volume is that of its token
    assert "entrepot-socket" not in str(created)
    assert "locations are not known" in warnings[0]


def test_an_index_that_hangs_holds_no_pod_up(site: WebhookCluster) -> None:
    site.cluster_view.hang = threading.Event()
    begin = time.monotonic()
    created, warnings = site.create(pod(requires=A))
    taken = time.monotonic() - begin
    site.cluster_view.hang.set()
    assert "affinity" not in created["spec"]
    assert "no decision within 1 s" in warnings[0]
    assert taken < 2


def test_problems_of_a_jobs_pods_are_events_of_the_job(site: WebhookCluster) -> None:
    site.create(job("lacking", 3, requires=C))
    path = f"/api/v1/namespaces/{site.team}/events"

    def unknown_object_events() -> list[Any]:
        pod_events: list[Any] = site.cluster.listed(path, fieldSelector="involvedObject.name=lacking")
        return [event for event in pod_events if event["reason"] == "UnknownObjects"]

    site.cluster.wait(unknown_object_events, "an Event", 30)
    (event,) = unknown_object_events()
    assert event["involvedObject"]["kind"] == "Job"
    assert event["type"] == "Warning"
    assert C in event["message"]
    assert len(placed(site, site.team, "job-name=lacking", 3)) == 3  # the pods run nevertheless


def test_the_rights_are_no_more_than_it_needs(site: WebhookCluster) -> None:
    api = Api(site.access(), patience=0)
    for path in (
        f"/api/v1/namespaces/{site.system}/secrets",
        f"/api/v1/namespaces/{site.team}/secrets/any",
        CONFIGURATIONS,
        f"/api/v1/namespaces/{site.team}/pods",
    ):
        with pytest.raises(AccessDenied):
            api.get(path)
    api.close()


def _empty(site: WebhookCluster) -> None:
    nothing = {"data": dict.fromkeys(("ca.crt", "ca.key", "tls.crt", "tls.key"))}
    site.change(f"/api/v1/namespaces/{site.system}/secrets/entrepot-webhook-tls", nothing)


def _bundle(site: WebhookCluster) -> bytes:
    webhooks = site.cluster.request("GET", f"{CONFIGURATIONS}/{site.name}")["webhooks"]
    (text,) = {webhook["clientConfig"]["caBundle"] for webhook in webhooks}
    return base64.b64decode(text)


def test_authority_and_certificate_are_renewed_while_pods_are_made(site: WebhookCluster) -> None:
    site.webhook.close()
    _empty(site)
    lifetimes = Lifetimes(timedelta(seconds=12), timedelta(seconds=8), timedelta(seconds=1.5))
    site.webhook = site.start(site.webhook.port, lifetimes)
    site.cluster.wait(lambda: not site.webhook.readiness_problems(), "the first certificate", 30)
    site.wait_live()
    first = _bundle(site)
    lost: list[Any] = []
    seen: set[bytes] = set()
    stop: threading.Event = threading.Event()

    def make_pods() -> None:
        while not stop.is_set():
            created, _ = site.create(pod(requires=A), dry_run=True)
            if "affinity" not in created["spec"]:
                lost.append(created)

    def replaced() -> bool:
        seen.add(_bundle(site))
        return first not in _bundle(site)

    maker = threading.Thread(target=make_pods)
    maker.start()
    try:
        site.cluster.wait(replaced, "the authority to be replaced", 60)
    finally:
        stop.set()
        maker.join()
        site.webhook.close()
        site.webhook = site.start(site.webhook.port)
    assert max(bundle.count(b"BEGIN") for bundle in seen) == 2
    assert site.webhook.counters.results()["late"] == 0
    assert lost == []
    site.cluster.wait(lambda: not site.webhook.readiness_problems(), "a certificate that lasts", 30)
    site.wait_live()


def test_replicas_that_start_at_once_agree(site: WebhookCluster) -> None:
    path = f"/api/v1/namespaces/{site.system}/secrets/entrepot-webhook-tls"
    _empty(site)
    certificates: list[Any] = []

    def replica() -> None:
        api = Api(site.access(), patience=0)
        certificates.append(SharedCertificates(api, site.settings()).refresh())
        api.close()

    replicas = [threading.Thread(target=replica) for _ in range(4)]
    for item in replicas:
        item.start()
    for item in replicas:
        item.join(30)
    assert len(certificates) == 4
    assert len({item.certificate for item in certificates}) == 1
    trusted = base64.b64decode(site.cluster.request("GET", path)["data"]["ca.crt"])
    site.cluster.wait(lambda: _bundle(site) == trusted, "the configuration to trust it", 30)
    site.wait_live()


def test_without_its_secret_or_configuration_it_says_what_to_do(site: WebhookCluster) -> None:
    api = Api(find(str(site.cluster.kubeconfig)), patience=0)
    settings = site.settings()
    with pytest.raises(InvalidArgument, match=r"Secret nowhere .* apply the shipped manifests"):
        SharedCertificates(api, dataclasses.replace(settings, secret="nowhere")).refresh()
    with pytest.raises(InvalidArgument, match="MutatingWebhookConfiguration nowhere not found"):
        SharedCertificates(api, dataclasses.replace(settings, configuration="nowhere")).refresh()
    api.close()


def workload(kind: str, **annotations: str) -> Any:
    version, batch = ("batch/v1", True) if "Job" in kind else ("apps/v1", False)
    manifest = {"apiVersion": version, "kind": kind, "metadata": {"generateName": "w-"}}
    if batch:
        inner = {"template": template("Never", **annotations)}
        return {
            **manifest,
            "spec": inner if kind == "Job" else {"schedule": "0 3 * * *", "jobTemplate": {"spec": inner}},
        }
    spec: Any = {"selector": {"matchLabels": {"app": "x"}}, "template": template(**annotations)}
    return {**manifest, "spec": {**spec, "serviceName": "x"} if kind == "StatefulSet" else spec}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"])
def test_whoever_writes_a_manifest_is_warned_of_wrong_annotations(site: WebhookCluster, kind: str) -> None:
    good = {"requires": f"{A}, {B.upper()},none", "locality": "required", "mounts": "on", "partitions": "3"}
    _wait_for_policy(site)
    assert site.create(workload(kind, **good), dry_run=True)[1] == []
    assert site.create(workload(kind), dry_run=True)[1] == []
    for wrong in (
        {"requires": "orders"},
        {"partitioned": f"{A},{A[:-1]}"},
        {"locality": "always"},
        {"store": "yes"},
        {"mounts": "true"},
        {"partitions": "0"},
        {"first_ordinal": "-1"},
    ):
        ((key, value),) = wrong.items()
        (warning,) = site.create(workload(kind, **wrong), dry_run=True)[1]
        assert f"entrepot.dev/{key.replace('_', '-')}" in warning
        assert value in warning or "object IDs" in warning
    templated = {"requires": "{{inputs.parameters.id}}"}
    assert site.create(workload(kind, **templated), dry_run=True)[1] == []


def test_a_pod_with_wrong_annotations_is_made_all_the_same(site: WebhookCluster) -> None:
    _wait_for_policy(site)
    created, warnings = site.create(pod(locality="always"))
    assert len(warnings) == 2  # one of the policy, and one of the webhook, which says that it left the pod alone
    assert "affinity" not in created["spec"]


def _wait_for_policy(site: WebhookCluster) -> None:
    site.cluster.wait(
        lambda: site.create(workload("Deployment", locality="always"), dry_run=True)[1], "the policy to be in force", 60
    )


def test_a_webhook_that_is_down_leaves_pods_as_they_are(site: WebhookCluster, wait_until: Callable[..., None]) -> None:
    port = site.webhook.port
    site.webhook.close()
    created, _ = site.create(pod(requires=A))
    assert "affinity" not in created["spec"]
    site.webhook = site.start(port)
    wait_until(lambda: not site.webhook.readiness_problems(), "the webhook to have its certificate")
    site.wait_live()
