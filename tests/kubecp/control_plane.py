"""A real Kubernetes control plane on loopback: etcd, API server, scheduler, controller manager, and kwok for kubelets.

    python tests/kubecp/control_plane.py      run one until interrupted; prints the kubeconfig for kubectl

Nodes exist only in the API: the scheduler places pods on them, kwok reports these as running, and nothing is run. It
needs only this machine, without root or a container engine. It uses free ports and keeps data and logs in a temporary
directory; all processes end with the one that started them.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path
from typing import Any

import kubecp_build
from kubecp_api import HOST, ClusterApi, ControlPlaneFailed, Manifest
from kubecp_keys import Authority

# Below the range that the kernel uses for outgoing connections, which could take a port between our check and its use.
_PORTS = range(20_000, 32_000)
_STOP_SECONDS = 20.0
_TRIES = 3


class ControlPlane(ClusterApi):
    """One control plane; a context manager.

    Args:
        program: path of the binary.
        scheduler_config: a KubeSchedulerConfiguration that replaces the default profile; its ``clientConnection`` is
            filled in.

    Attributes:
        pids: PID of each component's process; the rest as for ``ClusterApi``.
    """

    def __init__(self, program: Path, *, scheduler_config: Manifest | None = None) -> None:
        super().__init__(Path(tempfile.mkdtemp(prefix="kubecp-")))
        self._program = program
        self._scheduler_config = scheduler_config
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: dict[str, int] = {}

    def __enter__(self) -> ControlPlane:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pids(self) -> dict[str, int]:
        """PID of each component's process."""
        return {name: process.pid for name, process in self._processes.items()}

    def stop(self) -> None:
        """Stop the processes and remove the directory."""
        self._end_components()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self, component: str) -> str:
        """Log of a component so far."""
        return (self.folder / "log" / f"{component}.log").read_text(errors="replace")

    def _start(self) -> None:
        for name in ("keys", "log", "pids", "etcd"):
            (self.folder / name).mkdir(mode=0o700)
        self._make_keys()
        for number in range(1, _TRIES + 1):
            try:
                self._start_components()
            except ControlPlaneFailed as error:
                # Another process took a port since we checked.
                if number == _TRIES or "address already in use" not in str(error):
                    raise
                self._end_components()
                shutil.rmtree(self.folder / "etcd")
                (self.folder / "etcd").mkdir(mode=0o700)
            else:
                return

    def _end_components(self) -> None:
        # Kill them: nothing has to be kept, and an API server that is asked to stop waits for its watchers.
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(_STOP_SECONDS)
        self._processes.clear()

    def _make_keys(self) -> None:
        authority = Authority(self.keys)
        names = ["localhost", HOST, "10.96.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        authority.server("apiserver", names)
        authority.signing_pair("accounts")
        authority.client("admin", "admin", "system:masters")
        authority.client("kwok", "kwok", "system:masters")
        authority.client("scheduler", "system:kube-scheduler")
        authority.client("controller-manager", "system:kube-controller-manager")

    def _start_components(self) -> None:
        names = ("etcd", "peer", "apiserver", "scheduler", "controller-manager", "kwok")
        self._ports = dict(zip(names, _free_ports(len(names)), strict=True))
        self.server = f"https://{HOST}:{self._ports['apiserver']}"
        for name in ("admin", "kwok", "scheduler", "controller-manager"):
            user = {"client-certificate": str(self.keys / f"{name}.crt"), "client-key": str(self.keys / f"{name}.key")}
            self._write_kubeconfig(self.folder / f"{name}.kubeconfig", user)
        self._spawn("etcd", self._etcd())
        self._wait_healthy("etcd", f"http://{HOST}:{self._ports['etcd']}/health")
        self._spawn("apiserver", self._apiserver())
        self.wait(lambda: self._answers(self.server + "/readyz"), "the API server to be ready")
        self._spawn("controller-manager", self._controller_manager())
        self._spawn("scheduler", self._scheduler())
        self._spawn("kwok", self._kwok())
        self._wait_healthy("kwok", f"http://{HOST}:{self._ports['kwok']}/healthz")
        for name in ("scheduler", "controller-manager"):
            self._wait_healthy(name, f"https://{HOST}:{self._ports[name]}/healthz")
        account = "/api/v1/namespaces/default/serviceaccounts/default"  # pods cannot be created before it exists
        self.wait(lambda: self._exists(account), "the default service account")

    def _etcd(self) -> list[str]:
        client, peer = (f"http://{HOST}:{self._ports[name]}" for name in ("etcd", "peer"))
        return [
            *("--name=one", f"--data-dir={self.folder / 'etcd'}", "--log-level=warn"),
            "--unsafe-no-fsync",  # this data need not survive a power failure
            *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=one={peer}"),
        ]

    def _apiserver(self) -> list[str]:
        return [
            f"--etcd-servers=http://{HOST}:{self._ports['etcd']}",
            *(f"--bind-address={HOST}", f"--secure-port={self._ports['apiserver']}", f"--advertise-address={HOST}"),
            "--endpoint-reconciler-type=none",
            *(f"--tls-cert-file={self.keys}/apiserver.crt", f"--tls-private-key-file={self.keys}/apiserver.key"),
            f"--client-ca-file={self.ca}",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.keys}/accounts.pub",
            f"--service-account-signing-key-file={self.keys}/accounts.key",
            *("--service-cluster-ip-range=10.96.0.0/24", "--allow-privileged=true"),
            *("--enable-priority-and-fairness=false", "--profiling=false"),
        ]

    def _controller_manager(self) -> list[str]:
        return [
            *self._credentials("controller-manager"),
            "--leader-elect=false",
            # With shared credentials, its controllers may not remove the taint of a new node.
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self.keys}/accounts.key",
            f"--root-ca-file={self.ca}",
            "--profiling=false",
        ]

    def _scheduler(self) -> list[str]:
        if self._scheduler_config is None:
            return [*self._credentials("scheduler"), "--leader-elect=false", "--profiling=false"]
        file = self.folder / "scheduler.json"
        connection = {"kubeconfig": str(self.folder / "scheduler.kubeconfig")}
        file.write_text(
            json.dumps(
                {
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    "leaderElection": {"leaderElect": False},
                    **self._scheduler_config,
                    "clientConnection": connection,
                }
            )
        )
        return [f"--config={file}", *self._credentials("scheduler")[1:]]

    def _kwok(self) -> list[str]:
        return [
            f"--kubeconfig={self.folder / 'kwok.kubeconfig'}",
            *("--manage-all-nodes=true", "--node-lease-duration-seconds=40"),
            f"--config={kubecp_build.stages(self._program)}",
            f"--server-address={HOST}:{self._ports['kwok']}",
        ]

    def _credentials(self, name: str) -> list[str]:
        file = self.folder / f"{name}.kubeconfig"
        return [
            f"--kubeconfig={file}",
            *(f"--authentication-kubeconfig={file}", f"--authorization-kubeconfig={file}"),
            *(f"--bind-address={HOST}", f"--secure-port={self._ports[name]}"),
        ]

    def _spawn(self, name: str, arguments: list[str]) -> None:
        # In separate sessions: a terminal interrupt goes to the user of this class, who then stops them in order.
        with (self.folder / "log" / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [str(self._program), name, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=_plain_environment(),
                start_new_session=True,
            )
        (self.folder / "pids" / name).write_text(f"{self._processes[name].pid}\n")

    def _wait_healthy(self, name: str, url: str) -> None:
        self.wait(lambda: self._answers(url), f"{name} to answer")

    def _check(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                log_tail = "\n".join(self.log(name).splitlines()[-30:])
                raise ControlPlaneFailed(f"{name} has ended by itself with code {process.returncode}:\n{log_tail}")

    def _answers(self, url: str) -> bool:
        parts = urllib.parse.urlsplit(url)
        context = self._tls(check=url.startswith(self.server))
        connection: http.client.HTTPConnection = (
            http.client.HTTPSConnection(HOST, parts.port, timeout=5, context=context)
            if parts.scheme == "https"
            else http.client.HTTPConnection(HOST, parts.port, timeout=5)
        )
        try:
            connection.request("GET", parts.path)
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def create_control_plane(**options: Any) -> ControlPlane:
    """Create a control plane of the built binary, not started yet; options as for ``ControlPlane``.

    Raises:
        kubecp_build.NoControlPlane: it cannot be built here.
    """
    return ControlPlane(kubecp_build.ensure(), **options)


def _plain_environment() -> dict[str, str]:
    """Environment without the caller's settings, above all proxies, which would break loopback connections."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    return inherited | {"KUBECP_PARENT": str(os.getpid())}


def _free_ports(count: int) -> list[int]:
    ports: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise ControlPlaneFailed(f"no {count} free ports on {HOST} between {_PORTS.start} and {_PORTS.stop}")


def main() -> int:
    """Run a control plane until SIGINT or SIGTERM."""
    try:
        plane = create_control_plane()
        with plane:
            print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
            stop_signals = {signal.SIGINT, signal.SIGTERM}
            signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals)
            signal.sigwait(stop_signals)
    except (kubecp_build.NoControlPlane, ControlPlaneFailed) as error:
        print(f"kubecp: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
