"""Very many small objects: time and memory for each."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.harness.figures import FIRST, FREE, Collector, Key
from benchmarks.harness.plan import MIB, Plan, size_name
from benchmarks.harness.processes import CpuUsage, WorkerFailed, WorkerProcess, cpu_ns, private_bytes
from benchmarks.harness.stage import SystemsUnderTest, running_system
from benchmarks.systems import System
from benchmarks.systems.base import Unavailable

ROUNDS = 3


@dataclass
class Overhead:
    """Memory overhead of one small object beyond its payload, in bytes.

    Attributes:
        objects: number of objects stored.
        server: private memory of the server's processes.
        producer: private memory of the process that put them and keeps their IDs.
        store: the store's own account of its use beyond the payload; None: it has none.
    """

    system: str
    objects: int
    server: float
    producer: float
    store: float | None

    def to_json(self) -> dict[str, Any]:
        """For files."""
        return asdict(self)


def measure(under_test: SystemsUnderTest, systems: list[System], plan: Plan, collector: Collector) -> list[Overhead]:
    """Measure all systems, restarting each one for every turn."""
    overheads: dict[str, Overhead] = {}
    turn = [system for system in systems if system.many]
    for number in range(min(ROUNDS, plan.large_rounds)):
        shift = number * 2 % max(1, len(turn))
        for system in turn[shift:] + turn[:shift]:
            if under_test.has_failed(system, "many"):
                continue
            try:
                overheads[system.name] = _turn(under_test, system, plan, collector)
            except (Unavailable, WorkerFailed) as error:
                under_test.record_failure(system, "many", str(error))
    return list(overheads.values())


def _turn(under_test: SystemsUnderTest, system: System, plan: Plan, collector: Collector) -> Overhead:
    state = f"{plan.many_count:,} x bytes {size_name(plan.many_bytes)}"
    capacity = max(256 * MIB, 4 * plan.many_count * plan.many_bytes)
    with running_system(under_test, system, capacity) as running:
        server = running.server.pids()
        producer, consumer = running.worker(), running.worker()

        def note(operation: str, worker: WorkerProcess, op: str, **arguments: Any) -> int:
            worker.call("watch", pids=server)
            own, busy = cpu_ns([worker.pid, *server]), CpuUsage()
            answer = worker.call(op, batch=plan.many_batch, most_seconds=plan.many_seconds, **arguments)
            foreign = busy.share_of_others(cpu_ns([worker.pid, *server]) - own)
            count = int(answer["count"])
            key = Key("many", state, operation, FIRST, FREE, system.name)
            # One sample for each turn, the total divided by the number of objects: batches within a turn are not
            # repetitions.
            each = sum(answer["ns"]) / count
            text = "" if count == plan.many_count else f"stopped after {count:,} objects"
            cpu = answer["cpu_ns"] / count
            collector.add(key, [each], nbytes=plan.many_bytes, cpu_ns=cpu, foreign=foreign, batch=count, note=text)
            return count

        before = _memory(producer, server)
        count = note("put", producer, "put_many", count=plan.many_count, nbytes=plan.many_bytes)
        after = _memory(producer, server)
        tokens = producer.call("tokens")["tokens"]
        note("get", consumer, "get_many", tokens=tokens, nbytes=plan.many_bytes)
    store = None
    if before[2] is not None and after[2] is not None:
        store = (after[2] - before[2]) / count - plan.many_bytes
    return Overhead(system.name, count, (after[0] - before[0]) / count, (after[1] - before[1]) / count, store)


def _memory(producer: WorkerProcess, server: list[int]) -> tuple[int, int, int | None]:
    status = producer.call("status")["status"]
    used = None if status is None else int(status["used_bytes"])
    return private_bytes(server), private_bytes([producer.pid]), used
