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
from entrepot_io.cluster.access import Access, find
from entrepot_io.cluster.api import Api
from entrepot_io.placement import Node
from entrepot_operator import installing
from entrepot_operator.admission import Settings, Webhook, serve
from entrepot_operator.admission.authority import Terms
from entrepot_operator.admission.keeping import SharedCertificates

A, B, C = ("aa" * 20, "bb" * 20, "cc" * 20)
NODES = ("hook-a", "hook-b")
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"


class Known:
    """Locations controlled by the test; at first A is on the first node, B on the second."""

    def __init__(self) -> None:
        self.synced = True
        self.hang: threading.Event | None = None
        self.places: Any = {A: {NODES[0]: 1 << 30}, B: {NODES[1]: 1 << 30}}

    def locations(self, ids: Any) -> Any:
        if self.hang is not None:
            self.hang.wait(20)
        return {one: self.places[one] for one in ids if one in self.places}

    def nodes(self) -> Any:
        return {name: Node({"kubernetes.io/hostname": name}) for name in NODES}


class Site:
    """A cluster with the webhook's shipped manifests, renamed for this module, and a running webhook.

    Attributes:
        system: the operator's namespace.
        team: a namespace whose pods the webhook sees.
        strict: such a namespace in which hostPath volumes are forbidden.
    """

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.system, self.team, self.strict = (cluster.namespace(one) for one in ("hook-system", "hook", "hook-strict"))
        for name, label in ((self.team, {}), (self.strict, {"pod-security.kubernetes.io/enforce": "restricted"})):
            self.change(f"/api/v1/namespaces/{name}", {"metadata": {"labels": {"hook-test": self.system, **label}}})
        self.known = Known()
        self.name = f"{installing.installation(self.system)}-webhook"
        text = installing.text(namespace=self.system, only="webhook")
        self.manifests: list[Any] = list(yaml.safe_load_all(text))
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "entrepot-operator"}}
        cluster.apply(f"/api/v1/namespaces/{self.system}/serviceaccounts/entrepot-operator", account)
        self.webhook = self.start()
        for one in self.manifests:
            cluster.apply(cluster.path_of(one), self.here(one))
        self.wait_live()

    def access(self) -> Access:
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

    def start(self, port: int = 0, terms: Terms | None = None) -> Webhook:
        return serve(self.known, self.access(), self.settings(port), terms=terms)

    def here(self, manifest: Any) -> Any:
        """Change a manifest so that it calls the webhook on loopback, and only for this module's namespaces."""
        label = {"key": "hook-test", "operator": "In", "values": [self.system]}
        if manifest["kind"] == "MutatingWebhookConfiguration":
            for one in manifest["webhooks"]:
                path = one["clientConfig"].pop("service")["path"]
                one["clientConfig"]["url"] = f"https://127.0.0.1:{self.webhook.port}{path}"
                one["namespaceSelector"]["matchExpressions"].append(label)
        if manifest["kind"] == "ValidatingAdmissionPolicy":
            manifest["spec"]["matchConstraints"]["namespaceSelector"] = {"matchExpressions": [label]}
        return manifest

    def change(self, path: str, body: Any) -> None:
        self.cluster.request("PATCH", path, body, kind="application/merge-patch+json")

    def make(self, body: Any, namespace: str | None = None, *, dry_run: bool = False) -> tuple[Any, list[str]]:
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
        said = json.loads(answer.read())
        warnings = [value for key, value in answer.getheaders() if key.lower() == "warning"]
        connection.close()
        assert answer.status == 201, said
        return said, warnings

    def drawn(self) -> bool:
        made, _ = self.make(pod(requires=A), dry_run=True)
        return "affinity" in made["spec"]

    def wait_live(self) -> None:
        self.cluster.wait(self.drawn, f"the webhook to be called ({self.webhook.unready()})", 60)

    def close(self) -> None:
        self.webhook.close()
        for one in self.manifests:
            if not one["metadata"].get("namespace"):
                self.cluster.request("DELETE", self.cluster.path_of(one))


def template(restart: str | None = None, **annotations: str) -> Any:
    said = {f"entrepot.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    spec: Any = {"containers": [{"name": "main", "image": "none"}]}
    if restart:
        spec["restartPolicy"] = restart
    return {"metadata": {"labels": {"app": "x"}, "annotations": said}, "spec": spec}


def pod(labels: Any = None, **annotations: str) -> Any:
    made = template(**annotations)
    metadata = {**made["metadata"], "labels": labels or {}, "generateName": "p-"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]}


def job(name: str, completions: int, **annotations: str) -> Any:
    spec = {"completionMode": "Indexed", "completions": completions, "parallelism": completions}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {**spec, "template": template("Never", **annotations)},
    }


@pytest.fixture(scope="module")
def site(entrepot_cluster: Any) -> Iterator[Site]:
    with entrepot_cluster.some_nodes({name: {} for name in NODES}):
        running = Site(entrepot_cluster)
        yield running
        running.close()


@pytest.fixture(autouse=True)
def as_it_was(site: Site) -> Iterator[None]:
    yield
    site.known.synced, site.known.hang = True, None


def placed(site: Site, namespace: str, labels: str, count: int) -> dict[str, str]:
    """Nodes by name of the pods that a controller creates."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    site.cluster.wait(lambda: len(site.cluster.listed(path, labelSelector=labels)) >= count, f"{count} pods", 30)
    names = [one["metadata"]["name"] for one in site.cluster.listed(path, labelSelector=labels)]
    return dict(site.cluster.bound(namespace, names))


@pytest.mark.parametrize(("oid", "node"), [(A, NODES[0]), (B, NODES[1])])
def test_a_pod_lands_where_its_input_is(site: Site, oid: str, node: str) -> None:
    made, warnings = site.make(pod(requires=oid))
    assert warnings == []
    assert "entrepot.dev/injected" in made["metadata"]["annotations"]
    assert "/run/entrepot" in [one["mountPath"] for one in made["spec"]["containers"][0]["volumeMounts"]]
    name = made["metadata"]["name"]
    assert site.cluster.bound(site.team, [name]) == {name: node}


def test_each_pod_of_an_indexed_job_lands_where_its_part_is(site: Site) -> None:
    site.make(job("parts", 2, partitioned=f"{B},{A}"))
    nodes = placed(site, site.team, "job-name=parts", 2)
    assert {name.split("-")[1]: node for name, node in nodes.items()} == {"0": NODES[1], "1": NODES[0]}


def test_each_pod_of_a_stateful_set_lands_where_its_part_is(site: Site) -> None:
    spec: Any = {
        "serviceName": "x",
        "replicas": 2,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": "set"}},
        "template": template(partitioned=f"{A},{B}"),
    }
    spec["template"]["metadata"]["labels"] = {"app": "set"}
    site.make({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "set"}, "spec": spec})
    assert placed(site, site.team, "app=set", 2) == {"set-0": NODES[0], "set-1": NODES[1]}
    site.cluster.request("DELETE", f"/apis/apps/v1/namespaces/{site.team}/statefulsets/set")


def test_where_host_paths_are_forbidden_a_pod_is_drawn_and_taken(site: Site) -> None:
    one = pod(requires=A)
    safe = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    one["spec"]["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    one["spec"]["containers"][0]["securityContext"] = safe
    made, warnings = site.make(one, site.strict)
    assert "hostPath" not in str(made["spec"])
    assert "affinity" in made["spec"]
    assert "hostPath volumes are forbidden" in warnings[0]


def test_pods_that_ask_for_nothing_do_not_come_by(site: Site) -> None:
    before = site.webhook.counters.results()
    off = {"entrepot.dev/webhook": "off"}
    others = [pod(), pod(off, requires=A)]
    made = [site.make(one)[0] for one in others]
    made.append(site.make(pod(requires=A), "kube-system", dry_run=True)[0])
    made.append(site.make(pod(requires=A), site.system, dry_run=True)[0])
    assert not any("affinity" in one["spec"] for one in made)
    assert site.webhook.counters.results() == before


def test_what_is_not_known_leaves_the_pod_as_it_is_with_a_warning(site: Site) -> None:
    site.known.synced = False
    made, warnings = site.make(pod(requires=A))
    assert ("affinity" in made["spec"], "volumes" in made["spec"]) == (False, True)  # the volume is that of its token
    assert "entrepot-socket" not in str(made)
    assert "not known now" in warnings[0]


def test_an_index_that_hangs_holds_no_pod_up(site: Site) -> None:
    site.known.hang = threading.Event()
    begin = time.monotonic()
    made, warnings = site.make(pod(requires=A))
    taken = time.monotonic() - begin
    site.known.hang.set()
    assert "affinity" not in made["spec"]
    assert "no answer within 1 s" in warnings[0]
    assert taken < 2


def test_problems_of_a_jobs_pods_are_events_of_the_job(site: Site) -> None:
    site.make(job("lacking", 3, requires=C))
    path = f"/api/v1/namespaces/{site.team}/events"

    def told() -> list[Any]:
        found: list[Any] = site.cluster.listed(path, fieldSelector="involvedObject.name=lacking")
        return [one for one in found if one["reason"] == "UnknownObjects"]

    site.cluster.wait(told, "an Event", 30)
    (one,) = told()
    assert one["involvedObject"]["kind"] == "Job"
    assert one["type"] == "Warning"
    assert C in one["message"]
    assert len(placed(site, site.team, "job-name=lacking", 3)) == 3  # the pods run nevertheless


def test_the_rights_are_no_more_than_it_needs(site: Site) -> None:
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


def _empty(site: Site) -> None:
    nothing = {"data": dict.fromkeys(("ca.crt", "ca.key", "tls.crt", "tls.key"))}
    site.change(f"/api/v1/namespaces/{site.system}/secrets/entrepot-webhook-tls", nothing)


def _bundle(site: Site) -> bytes:
    found = site.cluster.request("GET", f"{CONFIGURATIONS}/{site.name}")["webhooks"]
    (text,) = {one["clientConfig"]["caBundle"] for one in found}
    return base64.b64decode(text)


def test_authority_and_certificate_are_renewed_while_pods_are_made(site: Site) -> None:
    site.webhook.close()
    _empty(site)
    terms = Terms(timedelta(seconds=12), timedelta(seconds=8), timedelta(seconds=1.5))
    site.webhook = site.start(site.webhook.port, terms)
    site.cluster.wait(lambda: not site.webhook.unready(), "the first certificate", 30)
    site.wait_live()
    first = _bundle(site)
    lost: list[Any] = []
    seen: set[bytes] = set()
    stop: threading.Event = threading.Event()

    def make_pods() -> None:
        while not stop.is_set():
            made, _ = site.make(pod(requires=A), dry_run=True)
            if "affinity" not in made["spec"]:
                lost.append(made)

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
    assert max(one.count(b"BEGIN") for one in seen) == 2
    assert site.webhook.counters.results()["late"] == 0
    assert lost == []
    site.cluster.wait(lambda: not site.webhook.unready(), "a certificate that lasts", 30)
    site.wait_live()


def test_replicas_that_start_at_once_agree(site: Site) -> None:
    path = f"/api/v1/namespaces/{site.system}/secrets/entrepot-webhook-tls"
    _empty(site)
    found: list[Any] = []

    def replica() -> None:
        api = Api(site.access(), patience=0)
        found.append(SharedCertificates(api, site.settings()).refresh())
        api.close()

    replicas = [threading.Thread(target=replica) for _ in range(4)]
    for one in replicas:
        one.start()
    for one in replicas:
        one.join(30)
    assert len(found) == 4
    assert len({one.certificate for one in found}) == 1
    trusted = base64.b64decode(site.cluster.request("GET", path)["data"]["ca.crt"])
    site.cluster.wait(lambda: _bundle(site) == trusted, "the configuration to trust it", 30)
    site.wait_live()


def test_without_its_secret_or_configuration_it_says_what_to_do(site: Site) -> None:
    api = Api(find(str(site.cluster.kubeconfig)), patience=0)
    settings = site.settings()
    with pytest.raises(InvalidArgument, match=r"Secret nowhere .* apply the shipped manifests"):
        SharedCertificates(api, dataclasses.replace(settings, secret="nowhere")).refresh()
    with pytest.raises(InvalidArgument, match="MutatingWebhookConfiguration nowhere is not there"):
        SharedCertificates(api, dataclasses.replace(settings, configuration="nowhere")).refresh()
    api.close()


def workload(kind: str, **annotations: str) -> Any:
    version, batch = ("batch/v1", True) if "Job" in kind else ("apps/v1", False)
    made = {"apiVersion": version, "kind": kind, "metadata": {"generateName": "w-"}}
    if batch:
        inner = {"template": template("Never", **annotations)}
        return {**made, "spec": inner if kind == "Job" else {"schedule": "0 3 * * *", "jobTemplate": {"spec": inner}}}
    spec: Any = {"selector": {"matchLabels": {"app": "x"}}, "template": template(**annotations)}
    return {**made, "spec": {**spec, "serviceName": "x"} if kind == "StatefulSet" else spec}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob"])
def test_whoever_writes_a_manifest_is_warned_of_wrong_annotations(site: Site, kind: str) -> None:
    good = {"requires": f"{A}, {B.upper()},none", "locality": "required", "mounts": "on", "partitions": "3"}
    _wait_for_policy(site)
    assert site.make(workload(kind, **good), dry_run=True)[1] == []
    assert site.make(workload(kind), dry_run=True)[1] == []
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
        (warning,) = site.make(workload(kind, **wrong), dry_run=True)[1]
        assert f"entrepot.dev/{key.replace('_', '-')}" in warning
        assert value in warning or "object IDs" in warning
    templated = {"requires": "{{inputs.parameters.id}}"}
    assert site.make(workload(kind, **templated), dry_run=True)[1] == []


def test_a_pod_with_wrong_annotations_is_made_all_the_same(site: Site) -> None:
    _wait_for_policy(site)
    made, warnings = site.make(pod(locality="always"))
    assert len(warnings) == 2  # one of the policy, and one of the webhook, which says that it left the pod alone
    assert "affinity" not in made["spec"]


def _wait_for_policy(site: Site) -> None:
    site.cluster.wait(
        lambda: site.make(workload("Deployment", locality="always"), dry_run=True)[1], "the policy to be in force", 60
    )


def test_a_webhook_that_is_down_leaves_pods_as_they_are(site: Site, wait_until: Callable[..., None]) -> None:
    port = site.webhook.port
    site.webhook.close()
    made, _ = site.make(pod(requires=A))
    assert "affinity" not in made["spec"]
    site.webhook = site.start(port)
    wait_until(lambda: not site.webhook.unready(), "the webhook to have its certificate")
    site.wait_live()
