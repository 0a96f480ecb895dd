"""A host of the demo's cluster: a store, its gateway, and a Celery worker whose tasks use that store.

All hosts are on this machine, and share nothing that hosts do not share: each has processes, a socket, a log folder
and shared memory of its own, and another host's values reach it through the gateways only.

(stopped) --start--> store --> gateway is registered --> worker is ready (running) --kill: SIGKILL to all--> (dead)
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import psutil

from examples.failover.faults import StoreProcess
from examples.failover.tasks import HOST_VARIABLE
from examples.flights.processes import Child
from examples.flights.runs import MIB, ROOT

START_SECONDS = 240.0
SLOTS = 1  # tasks that a host runs at a time, so that both hosts get some


class ClusterHost:
    """One host; a context manager that stops it.

    Args:
        name: of the host.
        folder: for its sockets and logs; a short path.
        directory: URL of the cluster's directory.
        nbytes: capacity of its store.
        environment: of all its processes; the store's address and the host's name are added.
    """

    def __init__(self, name: str, folder: Path, directory: str, nbytes: int, environment: Mapping[str, str]) -> None:
        self.name = name
        self.address = f"unix://{folder}/{name}.sock"
        self.environment = dict(environment) | {"ENTREPOT_ADDRESS": self.address, HOST_VARIABLE: name}
        self._folder = folder / name
        self._directory = directory
        self._store = StoreProcess(self._folder, self.address, nbytes // MIB, self.environment)
        self._children: list[Child] = []
        self._stack = ExitStack()

    def start(self) -> None:
        """Start the store, and the gateway that joins the cluster.

        Raises:
            DemoError: one of them does not start.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._stack.callback(self._store.stop)
        self._store.start()
        command = [sys.executable, "-m", "entrepot", "gateway", "--address", self.address]
        command += ["--cluster", self._directory, "--host", self.name]
        self._start("gateway", command, "is registered")

    def start_worker(self) -> None:
        """Start the Celery worker; it takes tasks as soon as this returns.

        Raises:
            DemoError: it does not start.
        """
        command = [sys.executable, "-m", "airflow", "celery", "worker", "--celery-hostname", self.name]
        command += ["--concurrency", str(SLOTS), "--pid", str(self._folder / "worker.pid")]
        command += ["--skip-serve-logs", "--without-mingle", "--without-gossip"]
        self._start("worker", command, " ready.")

    def _start(self, what: str, command: list[str], ready: str) -> None:
        log = self._folder / f"{what}.log"
        child = Child(f"{what} of {self.name}", command, log=log, environment=self.environment, folder=ROOT)
        self._stack.callback(child.stop)
        self._children.append(child)
        child.wait_for(
            lambda: ready in log.read_text(encoding="utf-8", errors="replace"), f"{ready.strip()!r}", START_SECONDS
        )

    def kill(self) -> None:
        """SIGKILL everything on this host: the worker, the task that it runs, the gateway, keeper and daemon."""
        victims: dict[int, psutil.Process] = {}
        roots = [psutil.Process(child.pid) for child in self._children if child.code is None]
        # Stopped parents start nothing more; what they had started before is found in the next round.
        while new := [process for process in _with_descendants(roots) if process.pid not in victims]:
            for process in new:
                victims[process.pid] = process
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGSTOP)
        for process in victims.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._store.kill_for_good()
        psutil.wait_procs(list(victims.values()), timeout=START_SECONDS)

    def is_dead(self) -> bool:
        """Whether none of its processes runs."""
        return all(child.code is not None for child in self._children)

    def __enter__(self) -> ClusterHost:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _with_descendants(roots: list[psutil.Process]) -> list[psutil.Process]:
    members: list[psutil.Process] = []
    for root in roots:
        with contextlib.suppress(psutil.NoSuchProcess):
            members += [root, *root.children(recursive=True)]
    return members
