"""``python -m benchmarks clients``: what access to a cluster by the official Kubernetes client costs, for decision 11.

Each figure is of a new process. The server is a process too, answers over TLS on loopback, and remembers nothing, so
the rates are those of a client with a server that costs little. Memory is resident, without that of the store.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from benchmarks.commands.checkpoints import own_store
from benchmarks.commands.client_worker import OBJECTS
from benchmarks.harness.figures import median
from benchmarks.harness.machine import ROOT, commit, machine
from benchmarks.harness.text import bytes_text, grid, time_text

if TYPE_CHECKING:
    from argparse import _SubParsersAction

LISTED = 10_000
SECONDS = 600
INSTANCE = "0f" * 16
WORKS = ["import", "publish", "apply", "operator"]


def add_clients(commands: _SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``clients``."""
    parser = commands.add_parser("clients", help="access to a cluster: imports, memory, requests")
    parser.add_argument("--rounds", type=int, default=5, help="default 5; medians are printed")
    parser.add_argument(
        "--also",
        nargs="+",
        type=Path,
        default=[],
        metavar="FOLDER",
        help="also with the version of the client in this folder (pip install --target FOLDER kubernetes==VERSION)",
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print a table."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="entrepot-bench-")))
        url = stack.enter_context(_server(folder))
        store = stack.enter_context(own_store(folder / "store", 64))
        for number in range(OBJECTS):
            store.put(bytes(100), name=f"object-{number}")
        measured: dict[str, dict[str, list[dict[str, float]]]] = {}
        for _ in range(arguments.rounds):  # interleaved
            for packages in (None, *arguments.also):
                for work in WORKS:
                    version, figures = _work(work, packages, url, folder, store.address)
                    measured.setdefault(version, {}).setdefault(work, []).append(figures)
    middle = {
        version: {work: {name: median([row[name] for row in rows]) for name in rows[0]} for work, rows in works.items()}
        for version, works in measured.items()
    }
    print(_table(middle))
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine(), "commit": commit(), "clients": middle}, indent=1))
    return 0


def _table(figures: dict[str, dict[str, dict[str, float]]]) -> str:
    head = ["kubernetes", "import", "memory", f"publisher of {OBJECTS} objects", "its processor time"]
    head += ["one apply, processor time", "applies per second", "operator and webhook", f"with {LISTED} objects"]
    rows = []
    for version, works in figures.items():
        publish, apply, operator = works["publish"], works["apply"], works["operator"]
        row = [version, time_text(works["import"]["import"]), bytes_text(works["import"]["memory"])]
        row += [bytes_text(publish["memory"]), time_text(publish["processor"])]
        row += [time_text(apply["each"]), f"{apply['per second']:.0f}"]
        rows.append([*row, bytes_text(operator["before"]), bytes_text(operator["memory"])])
    return grid(head, rows)


def _work(work: str, packages: Path | None, url: str, folder: Path, address: str) -> tuple[str, dict[str, float]]:
    """The client's version, and the figures of one process."""
    worker = [sys.executable, "-m", "benchmarks.commands.client_worker"]
    environment = dict(os.environ)
    if packages is not None:
        environment["PYTHONPATH"] = f"{packages.absolute()}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = subprocess.run(
        [*worker, work, url, str(folder / "ca.crt"), address],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{work}: {done.stderr[-2000:]}")
    figures: dict[str, Any] = json.loads(done.stdout)
    return str(figures.pop("version")), figures


@contextmanager
def _server(folder: Path) -> Iterator[str]:
    """An API server in a process of its own; yields its URL."""
    sys.path.insert(0, str(ROOT / "tests" / "kubecp"))
    from kubecp_keys import Authority

    Authority(folder).server("server", ["api.example"])
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.commands.clients", str(folder)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(SECONDS)


def _object(number: int) -> dict[str, Any]:
    """A LocalObject with the metadata that an API server returns, about 1.5 KB."""
    from entrepot.ids import ObjectID
    from entrepot_operator.kubernetes.objects import API_VERSION, LEASE_LABEL, MANAGED_BY, MANAGER, LocalObject

    node = f"node-{number % 20}"
    local_object = LocalObject(ObjectID(f"{number:040x}"), node, "main", "lease", INSTANCE, 1, 100, "s", "")
    spec = local_object.spec()
    managed = {
        "manager": "entrepot-publisher",
        "operation": "Apply",
        "apiVersion": API_VERSION,
        "time": "2030-01-01T12:00:00Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:metadata": {"f:labels": {LEASE_LABEL: {}}}, "f:spec": {f"f:{key}": {} for key in spec}},
    }
    metadata = {
        "name": local_object.name,
        "namespace": "stores",
        "uid": f"{number:036x}",
        "resourceVersion": str(number),
        "generation": 1,
        "creationTimestamp": "2030-01-01T12:00:00Z",
        "labels": {MANAGED_BY: MANAGER, LEASE_LABEL: "lease"},
        "ownerReferences": [{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": "lease", "uid": "u"}],
        "managedFields": [managed],
    }
    condition = {"type": "Available", "status": "True", "reason": "InMemory", "message": "in the memory of the store"}
    status = {"state": "InMemory", "conditions": [condition]}
    return {"apiVersion": API_VERSION, "kind": "LocalObject", "metadata": metadata, "spec": spec, "status": status}


def _page(begin: int, count: int, total: int) -> dict[str, Any]:
    rest = {"continue": str(begin + count)} if begin + count < total else {}
    items = [_object(number) for number in range(begin, min(begin + count, total))]
    return {"items": items, "metadata": {"resourceVersion": "1", **rest}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # head and body in one write, or Nagle's algorithm is what is measured

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        if parts.path.startswith("/api/v1/nodes/"):
            self._respond({"metadata": {"name": "node-a", "uid": "u"}})
            return
        total = 0 if "labelSelector" in query or "watch" in query else LISTED  # a new publisher has none of them
        self._respond(_page(int(query.get("continue", ["0"])[0]), int(query.get("limit", ["500"])[0]), total))

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body["metadata"] |= {"uid": "u", "generation": 1, "resourceVersion": "1"}
        self._respond(body)

    def _respond(self, content: Any) -> None:
        text = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def _serve(folder: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    print(f"https://127.0.0.1:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
