"""The API of a control plane, by an administrator: requests, namespaces, tokens, nodes."""

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
    """It did not start, or did not do what it was asked in time; the text has the end of its logs."""


class Refused(Exception):
    """The API server said no.

    Attributes:
        status: HTTP's.
        message: the server's.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class ClusterApi:
    """Requests to the API server.

    Args:
        folder: for kubeconfigs; ``keys`` in it has the certificates.

    Attributes:
        kubeconfig: an administrator's.
        server: URL of the API server.
        folder: state, logs, certificates.
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
        """One request; the answer as JSON has it.

        Args:
            path: with its query.
            body: sent as JSON.
            kind: its content type, such as ``application/merge-patch+json``.

        Raises:
            Refused: the server answered with an error.
        """
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json"} | ({} if data is None else {"Content-Type": kind})
        try:
            status, text = self._exchange(method, path, data, headers)
        except (OSError, http.client.HTTPException):  # the server has closed a connection that was idle
            status, text = self._exchange(method, path, data, headers)
        said = json.loads(text) if text.startswith(b"{") else text.decode(errors="replace")
        if status >= 400:
            raise Refused(status, said["message"] if isinstance(said, dict) else said)
        return said

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
        """Server-side apply of one resource.

        Raises:
            Refused: the server will not have it.
        """
        query = f"fieldManager={manager}&force=true&fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
        made: Manifest = self.request("PATCH", f"{path}?{query}", manifest, kind="application/apply-patch+yaml")
        return made

    def path_of(self, manifest: Manifest, namespace: str = "") -> str:
        """The path of a resource, by its version and kind as the server knows them.

        Args:
            manifest: with its name; without one the path is that of the collection.
            namespace: for a namespaced kind whose manifest names none.

        Raises:
            Refused: the server does not know the version.
            LookupError: it has no such kind in it.
        """
        version, kind = str(manifest["apiVersion"]), str(manifest["kind"])
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        for one in self.request("GET", root)["resources"]:
            if one["kind"] == kind and "/" not in one["name"]:
                metadata = manifest["metadata"]
                where = metadata.get("namespace") or namespace
                within = f"/namespaces/{where}" if one["namespaced"] else ""
                name = metadata.get("name")
                return f"{root}{within}/{one['name']}" + (f"/{name}" if name else "")
        raise LookupError(f"the server has no {kind} in {version}")

    def bound(self, namespace: str, pods: Iterable[str], seconds: float = 60.0) -> dict[str, str]:
        """The nodes of pods, waited for.

        Raises:
            ControlPlaneFailed: one is not placed in time; the text has what its scheduler says.
        """
        wanted = set(pods)
        found: dict[str, str] = {}
        said: dict[str, str] = {}

        def placed() -> bool:
            for one in self.listed(f"/api/v1/namespaces/{namespace}/pods"):
                name = one["metadata"]["name"]
                if one["spec"].get("nodeName"):
                    found[name] = one["spec"]["nodeName"]
                for condition in one["status"].get("conditions") or []:
                    said[name] = condition.get("message", "")
            return wanted <= found.keys()

        try:
            self.wait(placed, "pods to be placed", seconds)
        except ControlPlaneFailed as error:
            waiting = [f"{name}: {said.get(name, 'nothing')}" for name in sorted(wanted - found.keys())]
            raise ControlPlaneFailed("\n".join([str(error), *waiting[:10]])) from error
        return {name: found[name] for name in sorted(wanted)}

    def listed(self, path: str, **selectors: str) -> list[Manifest]:
        """The resources of a collection; selectors as the API names them (``labelSelector``, ``fieldSelector``)."""
        query = f"?{urllib.parse.urlencode(selectors)}" if selectors else ""
        items: list[Manifest] = self.request("GET", path + query)["items"]
        return items

    def namespace(self, prefix: str = "test") -> str:
        """A new namespace, in which pods can be made."""
        name = f"{prefix}-{random.randrange(1 << 40):010x}"
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        self.wait(lambda: self._there(account), f"the service account of {name}")
        return name

    def install(self, definitions: Iterable[Manifest]) -> None:
        """Install CRDs, and wait until their kinds are served."""
        paths = []
        for one in definitions:
            spec = one["spec"]
            self.apply(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{one['metadata']['name']}", one)
            paths += [f"/apis/{spec['group']}/{each['name']}/{spec['names']['plural']}" for each in spec["versions"]]
        self.wait(lambda: all(self._there(path) for path in paths), "the CRDs to be served")

    def kubeconfig_of(self, namespace: str, account: str, *, pod: Manifest | None = None) -> Path:
        """A kubeconfig with a token of a service account.

        Args:
            namespace: of the account.
            account: its name.
            pod: as the API has it; the token then is that pod's, and names its node.
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
        """Register a fake node, and wait until pods can be placed on it; returns its name.

        Args:
            name: also its label ``kubernetes.io/hostname``.
            labels: more labels.
            capacity: ``cpu``, ``memory``, ``pods``; default 8, 32Gi, 110.
        """
        self.nodes({name: labels or {}}, **capacity)
        return name

    def nodes(self, labels: Mapping[str, Mapping[str, str]], **capacity: str) -> None:
        """Register several fake nodes, with the labels of each, and wait until pods can be placed on them."""
        room = {"cpu": "8", "memory": "32Gi", "pods": "110"} | capacity
        for name, own in labels.items():
            basic = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
            manifest = {
                "metadata": {"name": name, "labels": basic | dict(own), "annotations": {"kwok.x-k8s.io/node": "fake"}},
                "status": {"allocatable": room, "capacity": room},
            }
            self.request("POST", "/api/v1/nodes", manifest)
        waiting = set(labels)

        def ready() -> bool:
            for one in self.listed("/api/v1/nodes"):
                conditions = one["status"].get("conditions") or []
                is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
                if is_ready and not any("not-ready" in each["key"] for each in one["spec"].get("taints") or []):
                    waiting.discard(one["metadata"]["name"])
            return not waiting

        self.wait(ready, f"the nodes {', '.join(labels)} to be ready")

    def remove_nodes(self, names: Sequence[str]) -> None:
        """Take nodes out of the cluster; what ran there goes with them, after a while."""
        for name in names:
            self.request("DELETE", f"/api/v1/nodes/{name}")

    @contextmanager
    def some_nodes(self, labels: Mapping[str, Mapping[str, str]], **capacity: str) -> Iterator[None]:
        """Nodes for as long as the context lasts, as with :meth:`nodes`."""
        self.nodes(labels, **capacity)
        try:
            yield
        finally:
            self.remove_nodes(list(labels))

    def wait(self, condition: Callable[[], object], what: str, seconds: float = WAIT_SECONDS) -> None:
        """Wait until a condition holds.

        Raises:
            ControlPlaneFailed: it did not in time, or a component has ended.
        """
        end = time.monotonic() + seconds
        while not condition():
            self._check()
            if time.monotonic() > end:
                raise ControlPlaneFailed(f"waited {seconds:.0f} s in vain for {what}")
            time.sleep(0.05)

    def _check(self) -> None:
        """Raises ControlPlaneFailed where waiting on makes no sense."""

    def _there(self, path: str) -> bool:
        try:
            self.request("GET", path)
        except Refused as error:
            if error.status not in (404, 429):  # 429: what is stored of a new kind is being read
                raise
            return False
        return True

    def _tls(self, *, check: bool = True) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.ca))
        if check:
            context.load_cert_chain(self.keys / "admin.crt", self.keys / "admin.key")
        else:  # certificates that these components make for themselves, on loopback
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

    def _write_kubeconfig(self, file: Path, user: Manifest, namespace: str = "default") -> None:
        """As JSON, which is YAML."""
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
