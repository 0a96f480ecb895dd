"""Large values: the first put, later puts, and how long a reader waits."""

from __future__ import annotations

import time
from contextlib import nullcontext

from benchmarks.harness.figures import FIRST, FREE, WARM, Collector, Key
from benchmarks.harness.limits import Native, copies_together, copy_limits
from benchmarks.harness.plan import MIB, Plan, size_name
from benchmarks.harness.processes import CpuUsage, WorkerFailed, cpu_ns
from benchmarks.harness.reserve import MemoryReserve
from benchmarks.harness.stage import SystemsUnderTest, running_system
from benchmarks.systems import ENTREPOT, System
from benchmarks.systems.base import ARRAY, TABLE, Unavailable

SPARE = 256 * MIB
SMALL = 64 << 10  # size of the value used to load a reader's libraries
NAMES = {ARRAY: "int64 array", TABLE: "table of 7 columns"}
# Large values that a turn holds: three in the store, one in each worker, one while it is being made.
VALUES_PER_TURN = 6
VALUES_PER_LIMIT = 2  # of the limit: source and target of the copy
RESERVED_FROM = 256 * MIB  # smaller values are for trying out, not measuring: then no memory is reserved
TOGETHER_ROUNDS = 12
START_DELAY = 0.3  # seconds; by then all know when to start


def state_name(kind: str, nbytes: int) -> str:
    """Name of a large value."""
    return f"{NAMES[kind]} {size_name(nbytes)}"


def measure(
    under_test: SystemsUnderTest, systems: list[System], native: Native | None, plan: Plan, collector: Collector
) -> None:
    """Measure large values. Every system is restarted for each turn, so that its first put is a first put.

    A machine's memory speed varies over time: the limit is measured before each turn of the store, in memory obtained
    in the same way as the store's, and the store has two turns in each round.
    """
    ours = _ours(systems)
    with MemoryReserve() if plan.large_bytes >= RESERVED_FROM else nullcontext() as reserve:
        for number in range(plan.large_rounds):
            shift = number * 2 % max(1, len(systems))
            in_turn = [*systems[shift:], *systems[:shift], *ours]
            turns = [(system, kind) for system in in_turn for kind in (ARRAY, TABLE)]
            for system, kind in turns:
                if kind not in system.kinds or under_test.has_failed(system, kind):
                    continue
                if native is not None and system in (ours or systems):
                    if reserve is not None:
                        reserve.make_available(VALUES_PER_LIMIT * plan.large_bytes + SPARE)
                    state = state_name(kind, plan.large_bytes)
                    copy_limits(native, collector, [state], plan.large_bytes, plan.large_puts + 1)
                try:
                    if reserve is not None:
                        reserve.make_available(VALUES_PER_TURN * plan.large_bytes + SPARE)
                    _turn(under_test, system, kind, plan, collector)
                except (Unavailable, WorkerFailed) as error:
                    under_test.record_failure(system, kind, str(error))


def _ours(systems: list[System]) -> list[System]:
    """The store itself, in all its variants."""
    return [system for system in systems if system.name.startswith(ENTREPOT.name)]


def _turn(under_test: SystemsUnderTest, system: System, kind: str, plan: Plan, collector: Collector) -> None:
    nbytes = plan.large_bytes
    state = state_name(kind, nbytes)

    def key(operation: str, use: str) -> Key:
        return Key("large", state, operation, use, FREE, system.name)

    with running_system(under_test, system, 3 * nbytes + SPARE) as running:
        server = running.server.pids()
        producer, consumer = running.worker(), running.worker()
        for worker in (producer, consumer):
            worker.call("watch", pids=server)
        # Libraries loaded on first use are not what is measured.
        producer.call("value", kind=kind, nbytes=SMALL)
        token = producer.call("put_large", count=1)["tokens"][0]
        consumer.call("read", token=token, kind=kind, nbytes=SMALL, count=1)
        producer.call("delete")
        producer.call("value", kind=kind, nbytes=nbytes)

        own, busy = cpu_ns([producer.pid, *server]), CpuUsage()
        put = producer.call("put_large", count=1 + plan.large_puts)
        foreign = busy.share_of_others(cpu_ns([producer.pid, *server]) - own)
        own, busy = cpu_ns([consumer.pid, *server]), CpuUsage()
        read = consumer.call("read", token=put["tokens"][0], kind=kind, nbytes=nbytes, count=plan.large_reads)
        read_foreign = busy.share_of_others(cpu_ns([consumer.pid, *server]) - own)

        pages = read["pages"]
        for use, part in ((FIRST, slice(0, 1)), (WARM, slice(1, None))):
            cpus = put["cpus_ns"][part]
            each = sum(cpus) / len(cpus)
            collector.add(key("put", use), put["ns"][part], nbytes=nbytes, cpu_ns=each, foreign=foreign, pages=pages)
            cpus = read["cpus_ns"][part]
            each = sum(cpus) / len(cpus)
            for operation in ("in_hand", "first_sum", "second_sum"):
                collector.add(
                    key({"in_hand": "get"}.get(operation, operation.replace("_", " ")), use),
                    read[operation][part],
                    nbytes=nbytes,
                    cpu_ns=each if operation == "in_hand" else None,
                    foreign=read_foreign,
                    pages=pages,
                )


def measure_together(
    under_test: SystemsUnderTest, systems: list[System], native: Native | None, plan: Plan, collector: Collector
) -> None:
    """Several producers at once; a sample is the time from the common start until the last is done."""
    nbytes, clients = plan.together_bytes, plan.together_clients
    state = f"{clients} x {state_name(ARRAY, nbytes)} at once"
    ours = _ours(systems)
    for system in systems:
        if ARRAY not in system.kinds or under_test.has_failed(system, "together"):
            continue
        if native is not None and system in (ours or systems):
            copies_together(native, collector, state, nbytes, clients, TOGETHER_ROUNDS)
        try:
            _together(under_test, system, plan, collector, state)
        except (Unavailable, WorkerFailed) as error:
            under_test.record_failure(system, "together", str(error))


def _together(under_test: SystemsUnderTest, system: System, plan: Plan, collector: Collector, state: str) -> None:
    nbytes, clients = plan.together_bytes, plan.together_clients
    with running_system(under_test, system, 2 * clients * nbytes + SPARE) as running:
        producers = [running.worker() for _ in range(clients)]
        for producer in producers:
            producer.call("value", kind=ARRAY, nbytes=nbytes)
        for number in range(1 + TOGETHER_ROUNDS):
            before = running.server_cpu_ns()
            at = time.monotonic() + START_DELAY
            for producer in producers:
                producer.send("put", count=1, at=at)
            answers = [producer.receive() for producer in producers]
            slowest = max(answer["ns"][0] for answer in answers)
            cpu = running.server_cpu_ns() - before + sum(answer["cpu_ns"] for answer in answers)
            key = Key("together", state, "put", FIRST if number == 0 else WARM, FREE, system.name)
            collector.add(key, [slowest], nbytes=nbytes * clients, cpu_ns=cpu)
