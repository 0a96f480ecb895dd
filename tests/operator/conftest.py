"""Fake API server with effects that a real one rarely shows: conflicts, overload, expired lists, a stopped clock."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from entrepot_operator.kubernetes.api import Api
from scripted_api import without_credentials
from tls_servers import PROXY_VARIABLES

Resource = dict[str, Any]


class FakeApiServer:
    """Resources by path, with the parts of server-side apply that the publisher relies on.

    These are: field ownership by manager, owner references merged by UID, and a separate status.

    Attributes:
        resources: by path.
        requests: ``(method, path)`` of each request.
        failures: responses to the next requests, ``(status, headers, body)``; None: that request is answered normally.
        now: the server's clock.
    """

    def __init__(self) -> None:
        self.resources: dict[str, Resource] = {}
        self.requests: list[tuple[str, str]] = []
        self.failures: list[tuple[int, dict[str, str], Any] | None] = []
        self.refuse: Callable[[str, str, Resource], tuple[int, str] | None] = lambda *_: None
        self.now = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)
        self.token: str | None = None
        self._applied: dict[str, dict[str, Resource]] = {}
        self._count = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def api(self, patience: float = 20) -> Api:
        """A client whose time is exactly the server's ``now``, however long a test takes."""
        return Api(without_credentials(self.url, "stores"), patience=patience, clock=lambda: 0.0)

    def put(self, path: str, resource: Resource) -> None:
        """Add a resource directly, without a request."""
        self._count += 1
        metadata = resource.setdefault("metadata", {})
        metadata.setdefault("uid", f"uid-{self._count}")
        metadata.setdefault("resourceVersion", str(self._count))
        metadata.setdefault("creationTimestamp", self.now.strftime("%Y-%m-%dT%H:%M:%SZ"))
        self.resources[path] = resource

    def of(self, plural: str) -> dict[str, Resource]:
        """The resources of a kind, by name."""
        return {
            path.rpartition("/")[2]: resource
            for path, resource in self.resources.items()
            if path.split("/")[-2] == plural
        }

    def pass_time(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def collect_garbage(self) -> None:
        """Act as the garbage collector: remove resources of whose owners none exists any more."""
        uids = {resource["metadata"]["uid"] for resource in self.resources.values()}
        for path, resource in list(self.resources.items()):
            owners = resource["metadata"].get("ownerReferences") or []
            if owners and not any(owner["uid"] in uids for owner in owners):
                del self.resources[path]

    def answer(self, method: str, target: str, body: Any) -> tuple[int, dict[str, str], Any]:
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        with self._lock:
            self.requests.append((method, parts.path))
            if self.failures and (failure := self.failures.pop(0)) is not None:
                return failure
            refused = self.refuse(method, parts.path, body or {})
            if refused is not None:
                return refused[0], {}, _status(refused[0], refused[1])
            return self._answer(method, parts.path, query, body)

    def _answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, dict[str, str], Any]:
        if method == "PATCH":
            return self._apply(path, query["fieldManager"], body)
        if method == "POST":
            return self._write(f"{path}/{body['metadata']['name']}", body, None)
        if method == "PUT":
            return self._write(path, body, body["metadata"].get("resourceVersion"))
        if method == "DELETE":
            if path not in self.resources:
                return 404, {}, _status(404, "not found")
            version = (body.get("preconditions") or {}).get("resourceVersion")
            if version not in (None, self.resources[path]["metadata"]["resourceVersion"]):
                return 409, {}, _status(409, "the object has been modified")
            del self.resources[path]
            self._applied.pop(path, None)
            return 200, {}, _status(200, "")
        if path in self.resources:
            return 200, {}, self.resources[path]
        plural = path.rpartition("/")[2]
        if plural not in ("localobjects", "globalobjects", "leases", "nodes"):
            return 404, {}, _status(404, "the server could not find the requested resource")
        matches = [resource for place, resource in sorted(self.resources.items()) if place.split("/")[-2] == plural]
        if "/namespaces/" in path:
            matches = [resource for resource in matches if resource["metadata"].get("namespace") == path.split("/")[-2]]
        for pair in query.get("labelSelector", "").split(","):
            if pair:
                key, _, value = pair.partition("=")
                matches = [
                    resource for resource in matches if (resource["metadata"].get("labels") or {}).get(key) == value
                ]
        begin, limit = int(query.get("continue", "0")), int(query.get("limit", "500"))
        rest = {"continue": str(begin + limit)} if len(matches) > begin + limit else {}
        return 200, {}, {"items": matches[begin : begin + limit], "metadata": rest}

    def _write(self, path: str, body: Resource, version: str | None) -> tuple[int, dict[str, str], Any]:
        """Create a resource, or replace it if it still has that version."""
        existing = self.resources.get(path)
        if (existing is None) != (version is None):
            return (
                (404, {}, _status(404, "not found")) if existing is None else (409, {}, _status(409, "already exists"))
            )
        if existing is not None and existing["metadata"]["resourceVersion"] != version:
            return 409, {}, _status(409, "the object has been modified")
        body["metadata"].pop("resourceVersion", None)
        self.put(path, body)
        return 200, {}, self.resources[path]

    def _apply(self, path: str, manager: str, body: Resource) -> tuple[int, dict[str, str], Any]:
        self._count += 1
        if path.endswith("/status"):
            path = path.removesuffix("/status")
            if path not in self.resources:
                return 404, {}, _status(404, "not found")
            resource = self.resources[path]
            status = {**resource.get("status", {}), **body["status"]}
            self.resources[path] = {**resource, "status": status}
        else:
            before = self.resources.get(path)
            managers = self._applied.setdefault(path, {})
            managers[manager] = body
            owners = {
                owner["uid"]: owner
                for each in managers.values()
                for owner in each["metadata"].get("ownerReferences", [])
            }
            metadata = {
                "uid": f"uid-{self._count}",
                "creationTimestamp": self.now.strftime("%Y-%m-%dT%H:%M:%SZ"),
                "generation": 0,
                **(before["metadata"] if before else {}),
                **body["metadata"],
                "ownerReferences": list(owners.values()),
            }
            if before is None or before.get("spec") != body["spec"]:
                metadata["generation"] += 1
            resource = {**(before or {}), **body, "metadata": metadata}
            self.resources[path] = resource
        self.resources[path]["metadata"]["resourceVersion"] = str(self._count)
        return 200, {}, self.resources[path]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                status, headers, answer = server.answer(self.command, self.path, body)
                text = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
                self.send_response_only(status)
                for key, value in {"Date": format_datetime(server.now, usegmt=True), **headers}.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_PATCH = do_DELETE = do_POST = do_PUT = _serve  # noqa: N815

            def log_message(self, format: str, *_: Any) -> None:
                """Log nothing: tests report failures themselves."""

        return Handler


def _status(code: int, message: str) -> Resource:
    reasons = {404: "NotFound", 409: "Conflict", 403: "Forbidden", 422: "Invalid", 410: "Expired"}
    return {"kind": "Status", "code": code, "reason": reasons.get(code, ""), "message": message}


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reach the servers on loopback directly: to the official client, loopback is no exception from a proxy."""
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    """An API server for this test."""
    running = FakeApiServer()
    running.put("/api/v1/nodes/node-a", {"metadata": {"name": "node-a", "labels": {"zone": "east"}}, "spec": {}})
    yield running
    running.stop()


@pytest.fixture
def kubeconfig(server: FakeApiServer, tmp_path: Path) -> Path:
    """A kubeconfig for the server, with namespace ``stores``."""
    file = tmp_path / "kubeconfig"
    file.write_text(
        json.dumps(
            {
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "x", "namespace": "stores"}}],
                "clusters": [{"name": "x", "cluster": {"server": server.url}}],
            }
        )
    )
    return file
