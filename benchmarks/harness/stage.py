"""The systems under test: availability, servers and workers, and their orderly end in any case."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.environments import environment
from benchmarks.harness.figures import FREE, SAME_CORE, TWO_CORES
from benchmarks.harness.packages import Package
from benchmarks.harness.processes import ALL_CPUS, WorkerProcess, cpu_ns, set_affinity
from benchmarks.systems import System
from benchmarks.systems.base import RunEnvironment, Server, Unavailable, make_folder, remove_folder


@dataclass
class SystemsUnderTest:
    """The systems of a run, each with its interpreter, or with the reason why it is unavailable.

    Attributes:
        package: the build of Entrepot.
        pythons: by system.
        missing: by system; why it is not on this machine.
        failures: by system and measurement; why it has no figures there, or fewer.
        versions: by system, as reported by its workers.
    """

    package: Package
    pythons: dict[str, str] = field(default_factory=dict[str, str])
    missing: dict[str, str] = field(default_factory=dict[str, str])
    failures: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    versions: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])

    def prepare(self, systems: Iterable[System]) -> list[System]:
        """Create their environments; returns the available systems."""
        prepared = []
        for system in systems:
            try:
                self.pythons[system.name] = (
                    environment(system.environment) if system.environment else self.package.python
                )
                prepared.append(system)
            except Unavailable as error:
                print(f"{system.name}: cannot be had: {error}", flush=True)
                self.missing[system.name] = str(error)
        return prepared

    def record_failure(self, system: System, at: str, reason: str) -> None:
        """Record why a system is not measured, or no further, at something."""
        print(f"{system.name}: given up at {at}: {reason}", flush=True)
        self.failures[system.name, at] = reason

    def has_failed(self, system: System, at: str) -> bool:
        """Whether it was given up at that."""
        return (system.name, at) in self.failures


class RunningSystem:
    """One started system.

    Args:
        under_test: for its interpreter.
        system: which.
        capacity: bytes that its store may use.
        started_ns: how long its server took to start.
    """

    def __init__(self, under_test: SystemsUnderTest, system: System, capacity: int) -> None:
        self.under_test = under_test
        self.system = system
        self._capacity = capacity
        self._stack = ExitStack()
        self._number = 0
        self.workers: list[WorkerProcess] = []

    def start(self) -> None:
        """Start the server.

        Raises:
            Unavailable: it did not start.
        """
        self._folder = make_folder(self.system.name.replace(" ", "").replace(":", ""))
        self._stack.callback(remove_folder, self._folder)
        python = self.under_test.pythons[self.system.name]
        variables = self.under_test.package.variables
        self.run_environment = RunEnvironment(self._folder, self._capacity, python, variables)
        self.server: Server = self.system.server()
        begin = time.perf_counter_ns()
        self._stack.callback(self.server.stop)
        self.address = self.server.start(self.run_environment)
        self.started_ns = time.perf_counter_ns() - begin

    def worker(self) -> WorkerProcess:
        """A new process with a connection."""
        self._number += 1
        log = self._folder / f"worker-{self._number}.log"
        worker = WorkerProcess(self.run_environment.python, self.run_environment.variables, log)
        self._stack.callback(worker.stop)
        self.workers.append(worker)
        answer = worker.call("open", module=self.system.module, name=self.system.client, address=self.address)
        self.under_test.versions[self.system.name] = answer["versions"]
        return worker

    def stop_worker(self, worker: WorkerProcess) -> None:
        """Stop one worker early."""
        self.workers.remove(worker)
        worker.call("close")
        worker.stop()

    def bind(self, cpus: str) -> None:
        """Bind server and workers to processors, as named in ``figures.Key.cpus``."""
        server, workers = {
            FREE: (ALL_CPUS, ALL_CPUS),
            SAME_CORE: (ALL_CPUS[:1], ALL_CPUS[:1]),
            TWO_CORES: (ALL_CPUS[-1:], ALL_CPUS[:1]),
        }[cpus]
        set_affinity(self.server.pids(), server)
        set_affinity([worker.pid for worker in self.workers], workers)

    def server_cpu_ns(self) -> int:
        """Processor time that its server has used so far."""
        return cpu_ns(self.server.pids())

    def stop(self) -> None:
        """Stop everything, in reverse order."""
        self._stack.close()

    @property
    def folder(self) -> Path:
        """The directory of its files."""
        return self._folder


@contextmanager
def running_system(under_test: SystemsUnderTest, system: System, capacity: int) -> Iterator[RunningSystem]:
    """Context with a started system."""
    running = RunningSystem(under_test, system, capacity)
    try:
        running.start()
        yield running
    finally:
        running.stop()


def versions_text(versions: dict[str, Any]) -> str:
    """``pyarrow 11.0.0, ...``, without paths, which mean nothing to others."""
    return ", ".join(f"{name} {value}" for name, value in versions.items() if "/" not in str(value))
