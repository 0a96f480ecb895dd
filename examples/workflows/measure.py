"""Runs a workflow on hosts, and measures time and memory."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.flights.measure import memory
from examples.workflows.hosts import Site
from examples.workflows.pipeline import Workflow

INTERVAL_SECONDS = 0.1


@dataclass(frozen=True)
class Figures:
    """What was measured of one run.

    Attributes:
        workflow, transport: which.
        read_seconds, write_seconds: of all processes together, until values are usable, and until they can be read.
        compute_seconds: of all processes together.
        bytes_read, bytes_written: of the values, whatever they take on the way.
        peak_bytes: memory of the hosts at most: of the workers, stores and gateways, and of files in memory.
        idle_bytes: the same before the run.
        answer: of the workflow.
    """

    workflow: str
    transport: str
    read_seconds: float
    write_seconds: float
    compute_seconds: float
    bytes_read: int
    bytes_written: int
    peak_bytes: int
    idle_bytes: int
    answer: dict[str, Any]

    @property
    def sharing_seconds(self) -> float:
        """Time in which data was handed on."""
        return self.read_seconds + self.write_seconds


def hosts_memory(site: Site) -> int:
    """Memory of the hosts: PSS of all processes, with pages in memory files that none of them has mapped.

    The S3 server and what it keeps are not counted: it is a service elsewhere.
    """
    taken = memory.sample(os.getpid(), excluded=site.extra_pid)
    in_files = 0
    if site.tmpfs is not None:
        for entry in os.scandir(site.tmpfs):
            try:
                in_files += entry.stat().st_blocks * 512
            except FileNotFoundError:
                continue  # removed meanwhile
    return taken.pss + max(0, taken.files + in_files - taken.shared)


class PeakMemory(threading.Thread):
    """Samples the hosts' memory until the end of a block.

    Attributes:
        idle: the sample at the beginning, in bytes.
        peak: the highest sample.
    """

    def __init__(self, site: Site) -> None:
        super().__init__(name="memory", daemon=True)
        self.idle = hosts_memory(site)
        self.peak = self.idle
        self._site = site
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(INTERVAL_SECONDS):
            self.peak = max(self.peak, hosts_memory(self._site))

    def __enter__(self) -> PeakMemory:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()
        self.peak = max(self.peak, hosts_memory(self._site))


class _Run:
    """One run of a workflow.

    Attributes:
        outcomes: of all tasks so far.
        answer: of the workflow, once it is there.
    """

    def __init__(self, workflow: Workflow, transport: str, site: Site, scale: float, run: str, timeout: float) -> None:
        self.outcomes: list[dict[str, Any]] = []
        self.answer: dict[str, Any] = {}
        self._workflow = workflow
        self._transport = transport
        self._site = site
        self._scale = scale
        self._name = run
        self._timeout = timeout
        self._references: dict[str, Any] = {}
        self._last_use = workflow.last_use(len(site.workers))

    def stage(self, number: int, threads: ThreadPoolExecutor) -> None:
        """Run a stage, then remove what no later stage reads, which is not measured."""
        count = 1 if self._workflow.stages[number].single else len(self._site.workers)
        for outcome in threads.map(lambda index: self._task(number, index), range(count)):
            self.outcomes.append(outcome)
            self._references |= outcome["references"]
            self.answer = outcome["answer"] or self.answer
        unused = [name for name in self._references if self._last_use.get(name, -1) <= number]
        removed = [self._references.pop(name) for name in unused]
        if removed:
            for index in _removers(self._transport, self._site):
                self._call(index, {"remove": removed})

    def _task(self, number: int, index: int) -> dict[str, Any]:
        count = len(self._site.workers)
        inputs = {name: self._references[name] for name in self._workflow.stages[number].reads(index, count)}
        task = {"workflow": self._workflow.name, "stage": number, "index": index, "count": count}
        return self._call(index, task | {"scale": self._scale, "inputs": inputs})

    def _call(self, index: int, task: dict[str, Any]) -> dict[str, Any]:
        settings = self._site.settings[index] | {"run": self._name}
        task |= {"transport": self._transport, "settings": settings}
        return self._site.workers[index].call(task, self._timeout)


def run_workflow(workflow: Workflow, transport: str, site: Site, scale: float, run: str, timeout: float) -> Figures:
    """Run a workflow once.

    Args:
        workflow, transport: which.
        site: the hosts.
        scale: of the data.
        run: a unique name.
        timeout: of each task, in seconds.

    Raises:
        DemoError: a task failed, or takes too long.
    """
    running = _Run(workflow, transport, site, scale, run, timeout)
    with PeakMemory(site) as memory_used, ThreadPoolExecutor(len(site.workers)) as threads:
        for number in range(len(workflow.stages)):
            running.stage(number, threads)
    outcomes = running.outcomes
    return Figures(
        workflow=workflow.name,
        transport=transport,
        read_seconds=sum(outcome["read"] for outcome in outcomes),
        write_seconds=sum(outcome["write"] for outcome in outcomes),
        compute_seconds=sum(outcome["compute"] for outcome in outcomes),
        bytes_read=sum(outcome["bytes_read"] for outcome in outcomes),
        bytes_written=sum(outcome["bytes_written"] for outcome in outcomes),
        peak_bytes=memory_used.peak,
        idle_bytes=memory_used.idle,
        answer=running.answer,
    )


def _removers(transport: str, site: Site) -> list[int]:
    """One worker of each host with a store; otherwise one worker, because there is one place."""
    if transport != "entrepot":
        return [0]
    addresses = [setting["address"] for setting in site.settings]
    return [addresses.index(address) for address in dict.fromkeys(addresses)]


def tmpfs_folder() -> Path:
    """Where files in memory can be made."""
    return Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
