"""Breakdown of one call's time: system calls and instructions of a put and of a get.

Each figure is the difference between a long and a short run, divided by the difference in calls, so that starting,
connecting and warming up do not count.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.harness.limits import Native, NativeFailed
from benchmarks.harness.plan import KIB, MIB
from benchmarks.harness.processes import WorkerFailed, WorkerProcess
from benchmarks.harness.stage import RunningSystem, SystemsUnderTest, running_system
from benchmarks.systems import ENTREPOT, System
from benchmarks.systems.base import BYTES, Unavailable

CAPACITY = 256 * MIB
SHORT, LONG = 200, 1200
# Calls in the shorter of two runs; each instruction may take 20 us on a virtual machine.
STEPPED = {"C": 10, "Python": 2}
ATTACH_SECONDS = 20.0
MAX_SERVER_PROCESSES = 4
STRACE_ROW = re.compile(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$")


@dataclass
class Calls:
    """System calls of one operation; both dictionaries map names to calls per operation.

    Attributes:
        client: in the client process.
        server: in the server's processes.
    """

    system: str
    operation: str
    client: dict[str, float] = field(default_factory=dict[str, float])
    server: dict[str, float] = field(default_factory=dict[str, float])

    def to_json(self) -> dict[str, Any]:
        """For files."""
        return asdict(self)


class Absent(Exception):
    """A tool is not installed, or may not be used; the message says why."""


class _Tracer:
    """strace attached to processes, counting calls."""

    def __init__(self, pids: list[int], output: Path) -> None:
        program = shutil.which("strace")
        if program is None:
            raise Absent("strace is not on this machine (apt-get install strace)")
        self._output = output
        self._errors = output.with_suffix(".err")
        places = [part for pid in pids for part in ("-p", str(pid))]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen([program, "-f", "-c", "-o", str(output), *places], stderr=errors)
        end = time.monotonic() + ATTACH_SECONDS
        while self._errors.read_text().count("attached") < len(pids):
            if self._process.poll() is not None or time.monotonic() > end:
                self.stop()
                raise Absent(f"strace could not attach: {self._errors.read_text().strip()[-300:]}")
            time.sleep(0.005)

    def stop(self) -> Counter[str]:
        """Detach; returns the calls by name."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=ATTACH_SECONDS)
        calls: Counter[str] = Counter()
        if self._output.exists():
            for line in self._output.read_text().splitlines():
                row = STRACE_ROW.match(line)
                if row and row[2] != "total":
                    calls[row[2]] += int(row[1])
        return calls


def system_calls(under_test: SystemsUnderTest, systems: list[System]) -> tuple[list[Calls], str]:
    """System calls of a put and a get of 1 KiB, warm. The text says why there are none."""
    results = []
    for system in systems:
        if BYTES not in system.kinds:
            continue
        try:
            with running_system(under_test, system, CAPACITY) as running:
                results += _of(running, system)
        except Absent as error:
            return results, str(error)
        except (Unavailable, WorkerFailed) as error:
            under_test.record_failure(system, "system calls", str(error))
    return results, ""


def _of(running: RunningSystem, system: System) -> list[Calls]:
    producer, consumer = running.worker(), running.worker()
    producer.call("value", kind=BYTES, nbytes=KIB)
    tokens = producer.call("put", count=50, keep=True)["tokens"]
    consumer.call("get", tokens=tokens, count=100, nbytes=KIB)
    put, get = Calls(system.name, "put"), Calls(system.name, "get")
    server = running.server.pids()
    server = server if len(server) <= MAX_SERVER_PROCESSES else []
    for calls, worker, arguments in (
        (put, producer, {"keep": True}),
        (get, consumer, {"tokens": tokens, "nbytes": KIB}),
    ):
        runs = [_traced(running, worker, server, calls.operation, count, arguments) for count in (SHORT, LONG)]
        for side, name in enumerate(("client", "server")):
            few, lots = runs[0][side], runs[1][side]
            each = {call: (lots[call] - few[call]) / (LONG - SHORT) for call in lots}
            getattr(calls, name).update({call: round(count, 3) for call, count in each.items() if count >= 0.005})
    return [put, get]


def _traced(
    running: RunningSystem, worker: WorkerProcess, server: list[int], op: str, count: int, arguments: dict[str, Any]
) -> tuple[Counter[str], Counter[str]]:
    tracers = [_Tracer(pids, running.folder / f"trace-{len(pids)}") for pids in ([worker.pid], server) if pids]
    try:
        worker.call(op, count=count, **arguments)
    finally:
        calls = [tracer.stop() for tracer in tracers]
    return calls[0], calls[1] if len(calls) > 1 else Counter()


# Gets or puts between two stops that the process makes itself; for ``bench_native steps``.
PYTHON_LOOP = """
import os, signal, sys
import entrepot
store = entrepot.connect(sys.argv[1], session="bench-steps")
oid, value = entrepot.ObjectID(sys.argv[4]), bytes(range(256)) * 4
once = (lambda: store.get(oid)) if sys.argv[2] == "get" else (lambda: store.put(value))
for _ in range(100):
    once()
os.kill(os.getpid(), signal.SIGSTOP)
for _ in range(int(sys.argv[3])):
    once()
os.kill(os.getpid(), signal.SIGSTOP)
"""


def instructions(under_test: SystemsUnderTest, native: Native) -> tuple[dict[str, float], str]:
    """User-mode instructions of Entrepot's client for one get and one put of 1 KiB, from C and from Python.

    Returns:
        Counts by name, and how they were obtained, or why they were not.
    """
    counted: dict[str, float] = {}
    with running_system(under_test, ENTREPOT, CAPACITY) as running:
        worker = running.worker()
        worker.call("value", kind=BYTES, nbytes=KIB)
        [token] = worker.call("put", count=1, keep=True)["tokens"]
        loops = {
            "C": [str(native.program), "loop", running.address.removeprefix("unix://")],
            "Python": [under_test.pythons[ENTREPOT.name], "-c", PYTHON_LOOP, running.address],
        }
        try:
            for operation in ("get", "put"):
                for language, command in loops.items():
                    counts = [
                        native.run("steps", *command, operation, count, token)["instructions"]
                        for count in (STEPPED[language], 3 * STEPPED[language])
                    ]
                    counted[f"{operation} from {language}"] = (counts[1] - counts[0]) / (2 * STEPPED[language])
        except NativeFailed as error:
            return counted, str(error)
    return counted, "ptrace single steps of the client's thread, user mode, one object got again and again"
