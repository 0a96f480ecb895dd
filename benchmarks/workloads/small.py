"""Small values, one at a time: the cost of one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.harness.figures import FREE, SAME_CORE, TWO_CORES, WARM, Collector, Key
from benchmarks.harness.limits import Native, socket_limits
from benchmarks.harness.plan import KIB, MIB, Plan, size_name
from benchmarks.harness.processes import ALL_CPUS, CpuUsage, WorkerFailed, WorkerProcess, cpu_ns
from benchmarks.harness.stage import RunningSystem, SystemsUnderTest
from benchmarks.systems import ENTREPOT, System
from benchmarks.systems.base import BYTES, Unavailable

CAPACITY = 512 * MIB
SIZES = {KIB: 1, MIB: 20}  # size -> divisor of the counts
GROUP = "small"


@dataclass
class _Pair:
    """A started system with its two workers."""

    running: RunningSystem
    producer: WorkerProcess
    consumer: WorkerProcess


def state_name(nbytes: int) -> str:
    """Name of a bytes value."""
    return f"bytes {size_name(nbytes)}"


def measure(
    under_test: SystemsUnderTest, systems: list[System], native: Native | None, plan: Plan, collector: Collector
) -> None:
    """Measure all systems in turn, ``plan.rounds`` times, each round starting with a different one."""
    standing: dict[str, _Pair] = {}
    try:
        for number in range(plan.rounds):
            if native is not None:
                socket_limits(native, collector, state_name(KIB), plan.small_count)
            turn = [system for system in systems if BYTES in system.kinds]
            shift = number % max(1, len(turn))
            for system in turn[shift:] + turn[:shift]:
                if not under_test.has_failed(system, GROUP):
                    _turn(under_test, system, native, plan, collector, standing)
    finally:
        for pair in standing.values():
            pair.running.stop()


def _turn(
    under_test: SystemsUnderTest,
    system: System,
    native: Native | None,
    plan: Plan,
    collector: Collector,
    standing: dict[str, _Pair],
) -> None:
    try:
        pair = standing.get(system.name)
        if pair is None:
            running = RunningSystem(under_test, system, CAPACITY)
            standing[system.name] = pair = _Pair.__new__(_Pair)
            pair.running = running
            running.start()
            pair.producer, pair.consumer = running.worker(), running.worker()
        for cpus in (FREE, SAME_CORE, TWO_CORES):
            if cpus == TWO_CORES and (len(ALL_CPUS) == 1 or not pair.running.server.pids()):
                continue
            pair.running.bind(cpus)
            sizes = SIZES if cpus != TWO_CORES else {KIB: SIZES[KIB]}  # a large one is hardly affected
            for nbytes, divisor in sizes.items():
                native_here = native if cpus == FREE and nbytes == KIB and system is ENTREPOT else None
                _calls(pair, cpus, nbytes, max(4, plan.small_count // divisor), collector, native_here)
        if not system.quiet:
            standing.pop(system.name).running.stop()
    except (Unavailable, WorkerFailed) as error:
        under_test.record_failure(system, GROUP, str(error))
        left = standing.pop(system.name, None)
        if left is not None:
            left.running.stop()


def _calls(pair: _Pair, cpus: str, nbytes: int, count: int, collector: Collector, native: Native | None) -> None:
    running, producer, consumer = pair.running, pair.producer, pair.consumer
    server = running.server.pids()
    for worker in (producer, consumer):
        worker.call("watch", pids=server)
    producer.call("value", kind=BYTES, nbytes=nbytes)
    name = running.system.name

    def note(operation: str, answer: dict[str, Any], foreign: float) -> None:
        key = Key(GROUP, state_name(nbytes), operation, WARM, cpus, name)
        each = answer["cpu_ns"] / len(answer["ns"])
        collector.add(key, answer["ns"], nbytes=nbytes, cpu_ns=each, foreign=foreign)

    def watched(worker: WorkerProcess, op: str, **arguments: Any) -> tuple[dict[str, Any], float]:
        own = cpu_ns([worker.pid, *server])
        busy = CpuUsage()
        answer = worker.call(op, **arguments)
        return answer, busy.share_of_others(cpu_ns([worker.pid, *server]) - own)

    # The same number of uncounted puts first warms the pages that the counted ones use.
    note("put", *watched(producer, "put", count=count, unkept=count))
    kept = producer.call("put", count=max(4, count // 10), keep=True)
    note("get", *watched(consumer, "get", tokens=kept["tokens"], count=2 * count, nbytes=nbytes))
    if native is not None:
        figures = native.run("get", running.address.removeprefix("unix://"), count, *kept["tokens"])
        ways = {"cpp": "entrepot from C++", "in_place": "entrepot from C++, in place", "c": "entrepot from C"}
        for way, text in ways.items():
            if not figures[way]:
                continue  # too large to be read in place
            key = Key(GROUP, state_name(nbytes), "get", WARM, cpus, text)
            collector.add(key, figures[way], nbytes=nbytes, batch=100)
        figures = native.run("put", running.address.removeprefix("unix://"), nbytes, count)
        collector.add(
            Key(GROUP, state_name(nbytes), "put", WARM, cpus, "entrepot from C"), figures["put"], nbytes=nbytes
        )
    producer.call("delete")
