"""Fake Kubernetes API over HTTP on loopback: as much as orchestrators need to run a pod or a job.

The orchestrators' own code and the official client talk to it, so that they send what a cluster would get. It records
what was created; a pod succeeds at once, and a job is passed to a callback that runs it.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

_SUCCEEDED = {
    "phase": "Succeeded",
    "containerStatuses": [
        {
            "name": "base",
            "image": "i",
            "imageID": "i",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": 0}},
        }
    ],
}


class FakeKubeApi:
    """Records what was created, in order.

    Attributes:
        pods, jobs: the manifests.
        unimplemented: requests that are not implemented; should be empty at the end of a test.
    """

    def __init__(self, run: Callable[[dict[str, Any]], subprocess.Popen[bytes]] | None = None) -> None:
        self.pods: list[dict[str, Any]] = []
        self.jobs: list[dict[str, Any]] = []
        self.unimplemented: list[str] = []
        self._run_job = run
        self._processes: dict[str, subprocess.Popen[bytes]] = {}  # by job name

    def stop_processes(self) -> None:
        """Wait for the processes that were started; kill those that hang."""
        for process in self._processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def _status(self, kind: str, name: str) -> dict[str, Any]:
        if kind == "pods":
            return _SUCCEEDED
        process = self._processes.get(name)
        failed = process is not None and process.poll() not in (None, 0)
        return {"failed": 1} if failed else {"active": 1}

    def respond(self, method: str, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        """Status and body of the response."""
        parts = path.strip("/").split("/")
        if "namespaces" not in parts:
            return self._not_implemented(method, path)
        kind, *rest = parts[parts.index("namespaces") + 2 :]
        if kind == "pods" and method == "POST" and body is not None:
            self.pods.append(body)
            return 201, {**body, "status": _SUCCEEDED}
        if kind == "jobs" and method == "POST" and body is not None:
            self.jobs.append(body)
            if self._run_job is not None:
                self._processes[body["metadata"]["name"]] = self._run_job(body)
            return 201, body
        if kind in ("pods", "events") and method == "GET" and not rest:
            return 200, {"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}
        if kind == "pods" and rest[1:] == ["log"]:
            return 200, ""
        manifests = self.pods if kind == "pods" else self.jobs
        matching = [manifest for manifest in manifests if rest and manifest["metadata"]["name"] == rest[0]]
        if matching:
            return 200, {**matching[-1], "status": self._status(kind, rest[0])}
        return self._not_implemented(method, path)

    def _not_implemented(self, method: str, path: str) -> tuple[int, Any]:
        self.unimplemented.append(f"{method} {path}")
        return 404, {"kind": "Status", "code": 404, "message": f"nobody answers {method} {path}"}


@contextmanager
def serving(
    folder: Path, run: Callable[[dict[str, Any]], subprocess.Popen[bytes]] | None = None
) -> Iterator[tuple[FakeKubeApi, Path]]:
    """Serve the API, and write a kubeconfig for its clients.

    Args:
        folder: directory for the kubeconfig.
        run: starts the command of a job.
    """
    api = FakeKubeApi(run)

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            content_length = int(self.headers.get("Content-Length") or 0)
            request_body = self.rfile.read(content_length)
            status, response = api.respond(
                self.command, urlsplit(self.path).path, json.loads(request_body) if request_body else None
            )
            text = response.encode() if isinstance(response, str) else json.dumps(response).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(response, str) else "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 (http.server's names)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    file = folder / "kubeconfig"
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}],
                "users": [{"name": "nobody", "user": {}}],
                "contexts": [{"name": "here", "context": {"cluster": "here", "user": "nobody"}}],
                "current-context": "here",
            }
        )
    )
    try:
        yield api, file
    finally:
        api.stop_processes()
        server.shutdown()
        server.server_close()
        thread.join(10)
