"""Administrator's access to a control plane's API: requests, namespaces, tokens, nodes."""

from __future__ import annotations

import base64
import http.client
import json
import random
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]
HOST = "127.0.0.1"
WAIT_SECONDS = 120.0


class ControlPlaneFailed(Exception):
    """A component did not start, or did not finish in time; the message includes the end of its logs."""


class Refused(Exception):
    """The API server rejected a request.

    Attributes:
        status: HTTP status.
        message: the server's message.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class ClusterApi:
    """Requests to the API server.

    Args:
        folder: directory for kubeconfigs; its subdirectory ``keys`` contains the certificates.

    Attributes:
        kubeconfig: an administrator's kubeconfig.
        server: URL of the API server.
        folder: directory of state, logs and certificates.
        ca: PEM file of the certificate authority.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys = folder / "keys"
        self.ca = self.keys / "ca.crt"
        self.kubeconfig = folder / "admin.kubeconfig"
        self.server = ""
        self._local = threading.local()

    def request(self, method: str, path: str, body: Manifest | None = None, *, kind: str = "application/json") -> Any:
        """Send a request; return the parsed JSON response.

        Args:
            path: including its query.
            body: sent as JSON.
            kind: content type of the body, such as ``application/merge-patch+json``.

        Raises:
            Refused: the server responded with an error.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json"} | ({} if data is None else {"Content-Type": kind})
        try:
            status, text = self._exchange(method, path, data, headers)
        except (OSError, http.client.HTTPException):  # the server has closed an idle connection
            status, text = self._exchange(method, path, data, headers)
        parsed = json.loads(text) if text.startswith(b"{") else text.decode(errors="replace")
        if status >= 400:
            raise Refused(status, parsed["message"] if isinstance(parsed, dict) else parsed)
        return parsed

    def _exchange(self, method: str, path: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        connection: http.client.HTTPSConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            port = urllib.parse.urlsplit(self.server).port
            connection = http.client.HTTPSConnection(HOST, port, timeout=30, context=self._tls())
            self._local.connection = connection
        try:
            connection.request(method, path, body=data, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            self._local.connection = None
            raise

    def apply(self, path: str, manifest: Manifest, *, dry_run: bool = False, manager: str = "tests") -> Manifest:
        """Apply one resource by server-side apply.

        Raises:
            Refused: the server rejects it.
        """
        query = f"fieldManager={manager}&force=true&fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
        applied: Manifest = self.request("PATCH", f"{path}?{query}", manifest, kind="application/apply-patch+yaml")
        return applied

    def path_of(self, manifest: Manifest, namespace: str = "") -> str:
        """Return the path of a resource, from its version and kind as known to the server.

        Args:
            manifest: with its name; without one, the path is that of the collection.
            namespace: for a namespaced kind whose manifest names none.

        Raises:
            Refused: the server does not know the version.
            LookupError: the version has no such kind.
        """
        version, kind = str(manifest["apiVersion"]), str(manifest["kind"])
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        for resource in self.request("GET", root)["resources"]:
            if resource["kind"] == kind and "/" not in resource["name"]:
                metadata = manifest["metadata"]
                resource_namespace = metadata.get("namespace") or namespace
                namespace_path = f"/namespaces/{resource_namespace}" if resource["namespaced"] else ""
                name = metadata.get("name")
                return f"{root}{namespace_path}/{resource['name']}" + (f"/{name}" if name else "")
        raise LookupError(f"the server has no {kind} in {version}")

    def bound(self, namespace: str, pods: Iterable[str], seconds: float = 60.0) -> dict[str, str]:
        """Wait until pods are scheduled; return their nodes.

        Raises:
            ControlPlaneFailed: one is not scheduled in time; the message includes the scheduler's reason.
        """
        pod_names = set(pods)
        node_by_pod: dict[str, str] = {}
        message_by_pod: dict[str, str] = {}

        def placed() -> bool:
            for pod in self.listed(f"/api/v1/namespaces/{namespace}/pods"):
                name = pod["metadata"]["name"]
                if pod["spec"].get("nodeName"):
                    node_by_pod[name] = pod["spec"]["nodeName"]
                for condition in pod["status"].get("conditions") or []:
                    message_by_pod[name] = condition.get("message", "")
            return pod_names <= node_by_pod.keys()

        try:
            self.wait(placed, "pods to be placed", seconds)
        except ControlPlaneFailed as error:
            waiting = [
                f"{name}: {message_by_pod.get(name, 'nothing')}" for name in sorted(pod_names - node_by_pod.keys())
            ]
            raise ControlPlaneFailed("\n".join([str(error), *waiting[:10]])) from error
        return {name: node_by_pod[name] for name in sorted(pod_names)}

    def listed(self, path: str, **selectors: str) -> list[Manifest]:
        """List a collection's resources; selectors as the API names them (``labelSelector``, ``fieldSelector``)."""
        query = f"?{urllib.parse.urlencode(selectors)}" if selectors else ""
        items: list[Manifest] = self.request("GET", path + query)["items"]
        return items

    def namespace(self, prefix: str = "test") -> str:
        """Create a namespace and wait until pods can be created in it."""
        name = f"{prefix}-{random.randrange(1 << 40):010x}"
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        self.wait(lambda: self._exists(account), f"the service account of {name}")
        return name

    def install(self, definitions: Iterable[Manifest]) -> None:
        """Install CRDs, and wait until their kinds are served."""
        paths = []
        for definition in definitions:
            spec = definition["spec"]
            self.apply(
                f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition['metadata']['name']}", definition
            )
            paths += [
                f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}" for version in spec["versions"]
            ]
        self.wait(lambda: all(self._exists(path) for path in paths), "the CRDs to be served")

    def kubeconfig_of(self, namespace: str, account: str, *, pod: Manifest | None = None) -> Path:
        """Write a kubeconfig with a token of a service account.

        Args:
            namespace: namespace of the account.
            account: its name.
            pod: as returned by the API; the token is then bound to that pod, and names its node.
        """
        spec: Manifest = {"expirationSeconds": 3600}
        if pod is not None:
            metadata = pod["metadata"]
            spec["boundObjectRef"] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "uid": metadata["uid"],
            }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = self.request(
            "POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        )
        file = self.folder / f"{namespace}-{account}-{random.randrange(1 << 40):010x}.kubeconfig"
        self._write_kubeconfig(file, {"token": answer["status"]["token"]}, namespace)
        return file

    def node(self, name: str, labels: Mapping[str, str] | None = None, **capacity: str) -> str:
        """Register a fake node, and wait until pods can be scheduled on it; return its name.

        Args:
            name: also its label ``kubernetes.io/hostname``.
            labels: further labels.
            capacity: ``cpu``, ``memory``, ``pods``; default 8, 32Gi, 110.
        """
        self.nodes({name: labels or {}}, **capacity)
        return name

    def nodes(self, labels: Mapping[str, Mapping[str, str]], **capacity: str) -> None:
        """Register several fake nodes with their labels, and wait until pods can be scheduled on them."""
        resources = {"cpu": "8", "memory": "32Gi", "pods": "110"} | capacity
        for name, node_labels in labels.items():
            default_labels = {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
            }
            manifest = {
                "metadata": {
                    "name": name,
                    "labels": default_labels | dict(node_labels),
                    "annotations": {"kwok.x-k8s.io/node": "fake"},
                },
                "status": {"allocatable": resources, "capacity": resources},
            }
            self.request("POST", "/api/v1/nodes", manifest)
        waiting = set(labels)

        def ready() -> bool:
            for node in self.listed("/api/v1/nodes"):
                conditions = node["status"].get("conditions") or []
                is_ready = any(entry["type"] == "Ready" and entry["status"] == "True" for entry in conditions)
                if is_ready and not any("not-ready" in entry["key"] for entry in node["spec"].get("taints") or []):
                    waiting.discard(node["metadata"]["name"])
            return not waiting

        self.wait(ready, f"the nodes {', '.join(labels)} to be ready")

    def remove_nodes(self, names: Sequence[str]) -> None:
        """Remove nodes from the cluster; their pods are removed with them, after a while."""
        for name in names:
            self.request("DELETE", f"/api/v1/nodes/{name}")

    @contextmanager
    def some_nodes(self, labels: Mapping[str, Mapping[str, str]], **capacity: str) -> Iterator[None]:
        """Register nodes as :meth:`nodes` does, and remove them on exit."""
        self.nodes(labels, **capacity)
        try:
            yield
        finally:
            self.remove_nodes(list(labels))

    def wait(self, condition: Callable[[], object], what: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait until a condition holds.

        Raises:
            ControlPlaneFailed: it did not hold in time, or a component has ended.
        """
        end = time.monotonic() + seconds
        while not condition():
            self._check()
            if time.monotonic() > end:
                raise ControlPlaneFailed(f"gave up waiting for {what} after {seconds:.0f} s")
            time.sleep(0.05)

    def _check(self) -> None:
        """Raise ControlPlaneFailed if waiting any longer is pointless."""

    def _exists(self, path: str) -> bool:
        try:
            self.request("GET", path)
        except Refused as error:
            if error.status not in (404, 429):  # 429: the stored objects of a new kind are still being read
                raise
            return False
        return True

    def _tls(self, *, check: bool = True) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        if check:
            context.load_cert_chain(self.keys / "admin.crt", self.keys / "admin.key")
        else:  # self-signed certificates of these components, on loopback
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _write_kubeconfig(self, file: Path, user: Manifest, namespace: str = "default") -> None:
        """Write a kubeconfig as JSON, which is valid YAML."""
        authority = base64.b64encode(self.ca.read_bytes()).decode()
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "kubecp", "cluster": {"server": self.server, "certificate-authority-data": authority}}
            ],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "kubecp", "context": {"cluster": "kubecp", "user": "user", "namespace": namespace}}],
            "current-context": "kubecp",
        }
        file.touch(mode=0o600)
        file.write_text(json.dumps(content))
