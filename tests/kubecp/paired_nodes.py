"""Nodes that exist only in the API, each paired with what would run on it: a store's daemon and its publisher.

:class:`Kubelet` does on this machine what a pod's container would do: it runs the command of a pod that was scheduled
on such a node, with the pod's environment and that node's store.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from kubecp_api import ClusterApi, ControlPlaneFailed, Manifest

STORE_LABEL = {"entrepot.dev/store": "ready"}
_STOP_SECONDS = 30.0
_POLL_SECONDS = 0.1


class PairedNode:
    """Store and publisher of one node.

    Args:
        name: name of the node.
        kubeconfig: used by the publisher.
        namespace: to which it publishes.
        size: of the store.

    Attributes:
        address: address of the store.
    """

    def __init__(self, name: str, kubeconfig: Path, namespace: str, size: str = "64MiB") -> None:
        self.name = name
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._size = size
        self._folder = Path(tempfile.mkdtemp(prefix="kn-"))  # a socket's path has at most 107 bytes
        self.address = f"unix://{self._folder}/store.sock"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start both; :meth:`wait` waits until they respond."""
        store = ["entrepot.daemon_main", "--address", self.address, "--size", self._size, "--spill-path", "none"]
        self._spawn("store", store)
        self.start_publisher()

    def start_publisher(self) -> None:
        """Start or restart the publisher."""
        arguments = ["entrepot.cli", "publish", "--address", self.address, "--node", self.name, "--store", "main"]
        arguments += ["--namespace", self._namespace, "--kubeconfig", str(self._kubeconfig), "--interval", "0.2"]
        self._spawn("publisher", [*arguments, "--lease-seconds", "30"])

    def answers(self) -> bool:
        """Return whether the store accepts connections.

        Raises:
            ControlPlaneFailed: one of the processes has ended.
        """
        for role, process in self._processes.items():
            if process.poll() is not None:
                raise ControlPlaneFailed(f"the {role} of {self.name} has ended:\n{self.log(role)}")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            return probe.connect_ex(self.address.removeprefix("unix://")) == 0

    def end(self, role: str) -> None:
        """Stop one of them, ``store`` or ``publisher``."""
        process = self._processes.pop(role)
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_STOP_SECONDS)

    def stop(self) -> None:
        """Stop both and remove their directory."""
        for role in ("publisher", "store"):
            if role in self._processes:
                self.end(role)
        shutil.rmtree(self._folder, ignore_errors=True)

    def log(self, role: str) -> str:
        """Log of one of them."""
        return (self._folder / f"{role}.log").read_text(errors="replace")

    def _spawn(self, role: str, arguments: list[str]) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ENTREPOT_")}
        with (self._folder / f"{role}.log").open("ab") as log:
            self._processes[role] = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=inherited | {"ENTREPOT_NODE": self.name},
            )


@contextmanager
def paired_nodes(
    plane: ClusterApi, labels: Mapping[str, Mapping[str, str]], namespace: str, *, size: str = "64MiB", **capacity: str
) -> Iterator[dict[str, PairedNode]]:
    """Run nodes with their stores, by name, until the context exits.

    Args:
        plane: the control plane, with the CRDs installed.
        labels: labels of each node, besides the usual ones and that of a node with a store.
        namespace: to which their publishers publish.
        size: of each store.
        capacity: as for ``ClusterApi.nodes``.
    """
    with ExitStack() as stack:
        stack.enter_context(
            plane.some_nodes({name: {**STORE_LABEL, **node_labels} for name, node_labels in labels.items()}, **capacity)
        )
        nodes = {}
        for name in labels:
            nodes[name] = PairedNode(name, plane.kubeconfig, namespace, size)
            stack.callback(nodes[name].stop)
            nodes[name].start()
        plane.wait(lambda: all(node.answers() for node in nodes.values()), "the stores of the nodes to answer")
        yield nodes


@dataclass
class PodRun:
    """One pod that was run.

    Attributes:
        pod: its manifest when it was scheduled.
        node: its node.
        code: exit code; None while it runs.
    """

    pod: Manifest
    node: str
    process: subprocess.Popen[bytes]
    code: int | None = None


class Kubelet:
    """Runs pods of one namespace on paired nodes; a context manager.

    Args:
        plane: the control plane.
        nodes: the paired nodes.
        namespace: namespace of the pods.
        folder: directory for their logs, ``POD.log``.
        program: maps a container to a command line.
        variables: environment of each process, besides what its pod specifies.

    Attributes:
        runs: the pods that were run, by name.
    """

    def __init__(
        self,
        plane: ClusterApi,
        nodes: Mapping[str, PairedNode],
        namespace: str,
        folder: Path,
        *,
        program: Callable[[Manifest], list[str]],
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._plane = plane
        self._nodes = nodes
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._folder = folder
        self._program = program
        self._variables = dict(variables or {})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet")
        self._error: BaseException | None = None
        self.runs: dict[str, PodRun] = {}

    def __enter__(self) -> Kubelet:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for run in self.runs.values():
            if run.process.poll() is None:
                run.process.kill()
                run.process.wait(_STOP_SECONDS)

    def check(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self._error is not None:
            raise ControlPlaneFailed(f"the kubelet failed: {self._error}") from self._error

    def log(self, pod: str) -> str:
        """Log of a pod."""
        return (self._folder / f"{pod}.log").read_text(errors="replace")

    def wait(self, pods: Iterable[str], seconds: float = 60.0) -> None:
        """Wait until pods have run to their end.

        Raises:
            ControlPlaneFailed: one failed, or did not end in time; the message includes its log.
        """
        names = list(pods)

        def ended() -> bool:
            self.check()
            return all(name in self.runs and self.runs[name].code is not None for name in names)

        self._plane.wait(ended, f"the pods {', '.join(names)} to end", seconds)
        for name in names:
            if self.runs[name].code != 0:
                raise ControlPlaneFailed(f"the pod {name} ended with {self.runs[name].code}:\n{self.log(name)}")

    def _run(self) -> None:
        try:
            while not self._stop.wait(_POLL_SECONDS):
                self._poll_pods()
        except BaseException as error:  # raised by check() in the waiting thread
            self._error = error

    def _poll_pods(self) -> None:
        for pod in self._plane.listed(self._pods):
            name, node = pod["metadata"]["name"], pod["spec"].get("nodeName")
            if node in self._nodes and name not in self.runs and not pod["metadata"].get("deletionTimestamp"):
                self.runs[name] = PodRun(pod, node, self._start(pod, self._nodes[node]))
        for run in self.runs.values():
            if run.code is None and run.process.poll() is not None:
                self._report_status(run)
                run.code = run.process.returncode

    def _start(self, pod: Manifest, node: PairedNode) -> subprocess.Popen[bytes]:
        container = pod["spec"]["containers"][0]
        variables = {name: value for name, value in os.environ.items() if not name.startswith("ENTREPOT_")}
        variables |= self._variables
        for variable in container.get("env") or []:
            field = (variable.get("valueFrom") or {}).get("fieldRef", {}).get("fieldPath")
            variables[variable["name"]] = node.name if field == "spec.nodeName" else variable.get("value", "")
        if "ENTREPOT_ADDRESS" in variables and _socket_is_mounted(pod["spec"], variables["ENTREPOT_ADDRESS"]):
            variables["ENTREPOT_ADDRESS"] = node.address  # as the mount would map it
        with (self._folder / f"{pod['metadata']['name']}.log").open("wb") as log:
            return subprocess.Popen(
                self._program(container), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables
            )

    def _report_status(self, run: PodRun) -> None:
        """Write the pod's final status, for anyone who waits for it; for a Job's pods, kwok has already done so."""
        name = run.pod["metadata"]["name"]
        terminated = {
            "exitCode": run.process.returncode,
            "reason": "Completed" if run.process.returncode == 0 else "Error",
        }
        container = {
            "name": run.pod["spec"]["containers"][0]["name"],
            "image": "none",
            "imageID": "none",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": terminated},
        }
        phase = "Succeeded" if run.process.returncode == 0 else "Failed"
        status = {"status": {"phase": phase, "containerStatuses": [container]}}
        current = [pod for pod in self._plane.listed(self._pods) if pod["metadata"]["name"] == name]
        if current and current[0]["status"].get("phase") not in ("Succeeded", "Failed"):
            path = f"{self._pods}/{name}/status"
            self._plane.request("PATCH", path, status, kind="application/merge-patch+json")


def local_command(container: Manifest) -> list[str]:
    """A container's command line, run by the tests' Python interpreter."""
    words = [*(container.get("command") or []), *(container.get("args") or [])]
    return [sys.executable, *words[1:]] if words[0] == "python" else [sys.executable, "-m", *words]


def _socket_is_mounted(spec: Manifest, address: str) -> bool:
    folder = os.path.dirname(address.removeprefix("unix://"))
    host_paths = {item["name"]: item["hostPath"]["path"] for item in spec.get("volumes") or [] if "hostPath" in item}
    mounts = spec["containers"][0].get("volumeMounts") or []
    return any(item["mountPath"] == folder and host_paths.get(item["name"]) == folder for item in mounts)
