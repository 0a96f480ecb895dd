"""Fixed costs: of an idle store, of starting it, and of the first operation."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness.figures import median
from benchmarks.harness.plan import MIB
from benchmarks.harness.processes import WorkerFailed, cpu_ns, private_bytes
from benchmarks.harness.stage import SystemsUnderTest, running_system
from benchmarks.systems import ENTREPOT, System
from benchmarks.systems.base import Unavailable, make_folder, remove_folder

IDLE_SECONDS = 3.0
CAPACITY = 512 * MIB
STARTS = 5
IMPORTS = 15
PROGRAM_SECONDS = 60
MODULES = {
    "entrepot": "entrepot",
    "plasma": "pyarrow.plasma",
    "vineyard": "vineyard",
    "ray": "ray",
    "lmdb": "lmdb",
    "redis": "redis",
}
# Like a user's first program: no daemon runs, connect() starts one.
FIRST_PUT = """
import json, time
import entrepot
begin = time.perf_counter_ns()
store = entrepot.connect()
oid = store.put(bytes(1024))
end = time.perf_counter_ns()
store.get(oid)
status = store.status()
print(json.dumps({"ns": end - begin, "pids": [status["pid"], status["keeper_pid"]]}))
"""
IMPORT = "import time; begin = time.perf_counter_ns(); import {}; print(time.perf_counter_ns() - begin)"


@dataclass
class Cost:
    """One system's costs, in seconds and bytes. None: not applicable, or not available.

    Attributes:
        start: until its server accepts connections (Entrepot: until its memory is warm, too).
        idle_cpu: processor seconds per second of the idle server, with one client connected.
        idle_private: private memory of the idle server.
        processes: of the server.
        import_time: of its Python package, in a new interpreter.
    """

    system: str
    start: float | None = None
    idle_cpu: float | None = None
    idle_private: int | None = None
    processes: int | None = None
    import_time: float | None = None

    def to_json(self) -> dict[str, Any]:
        """For files."""
        return asdict(self)


def measure(under_test: SystemsUnderTest, systems: list[System]) -> list[Cost]:
    """Measure every system that has a server or a package."""
    costs = []
    for system in systems:
        cost = Cost(system.name)
        try:
            with running_system(under_test, system, CAPACITY) as running:
                running.worker()
                server = running.server.pids()
                if server:
                    cost.start = running.started_ns / 1e9
                    cost.processes = len(server)
                    time.sleep(0.5)  # work left over from the start is not idling
                    cpu, begin = cpu_ns(server), time.monotonic()
                    time.sleep(IDLE_SECONDS)
                    cost.idle_cpu = (cpu_ns(running.server.pids()) - cpu) / 1e9 / (time.monotonic() - begin)
                    cost.idle_private = private_bytes(running.server.pids())
        except (Unavailable, WorkerFailed) as error:
            under_test.record_failure(system, "costs", str(error))
            continue
        costs.append(cost)
    _imports(under_test, systems, {cost.system: cost for cost in costs})
    return costs


def _imports(under_test: SystemsUnderTest, systems: list[System], costs: dict[str, Cost]) -> None:
    """Time imports, interleaved, so that a busy moment affects all alike."""
    times: dict[str, list[float]] = {}
    for number in range(IMPORTS + 1):
        for system in systems:
            module = MODULES.get(system.name)
            if module is None or system.name not in costs:
                continue
            command = [under_test.pythons[system.name], "-W", "ignore", "-c", IMPORT.format(module)]
            done = subprocess.run(
                command, env=under_test.package.variables, capture_output=True, text=True, timeout=PROGRAM_SECONDS
            )
            if done.returncode == 0 and number > 0:  # the first one reads from disk and writes byte code
                times.setdefault(system.name, []).append(int(done.stdout) / 1e9)
    for name, samples in times.items():
        costs[name].import_time = median(samples)


def first_put(under_test: SystemsUnderTest) -> dict[str, Any]:
    """Seconds from ``entrepot.connect()``, which starts a private daemon, until the first put is done."""
    samples = []
    for _ in range(STARTS):
        folder = make_folder("first")
        try:
            samples.append(_first_put_once(under_test, folder))
        finally:
            remove_folder(folder)
    samples.sort()
    return {"median": median(samples), "best": samples[0], "worst": samples[-1], "samples": len(samples)}


def _first_put_once(under_test: SystemsUnderTest, folder: Path) -> float:
    places = {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CACHE", "CONFIG")}
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700)
    variables = under_test.package.variables | places | {"XDG_RUNTIME_DIR": str(runtime)}
    command = [under_test.pythons[ENTREPOT.name], "-c", FIRST_PUT]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=PROGRAM_SECONDS)
    if done.returncode != 0:
        raise WorkerFailed(f"a private daemon could not be used: {done.stderr.strip()[-500:]}")
    answer = json.loads(done.stdout)
    stop = [under_test.pythons[ENTREPOT.name], "-m", "entrepot.cli", "stop"]
    subprocess.run(stop, env=variables, capture_output=True, timeout=PROGRAM_SECONDS)
    _end(answer["pids"])
    return float(answer["ns"]) / 1e9


def _end(pids: list[int]) -> None:
    """Wait until a stopped daemon and its keeper are gone; kill them after ten seconds."""
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > end:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return
        time.sleep(0.01)
