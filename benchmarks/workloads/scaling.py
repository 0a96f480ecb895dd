"""Growth of costs with the number of objects, with clients, with the size of a value, and with time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.harness.figures import median, quantile
from benchmarks.harness.limits import Native, NativeFailed
from benchmarks.harness.plan import GIB, KIB, MIB, Plan
from benchmarks.harness.processes import WorkerFailed
from benchmarks.harness.stage import SystemsUnderTest, running_system
from benchmarks.systems import ENTREPOT, System
from benchmarks.systems.base import ARRAY, Unavailable

OBJECT_BYTES = 100  # of the many objects in the directory
OBJECT_COST = 600  # generous: payload, record, slot and index
CROWD_MS = 600
CROWD_MS_EACH = 20  # so that each of very many gets a turn in both halves
CROWD_BYTES = KIB
CHURN_CAPACITY = GIB
LARGE_SHARE = 0.9  # of the largest possible lease after the churn; records need some of it
SIZE_REPEATS = 5
FILL_SECONDS = 200.0


def _powers(last: int, factor: int) -> Iterator[int]:
    number = 1
    while number < last:
        yield number
        number *= factor
    yield last


def objects(under_test: SystemsUnderTest, plan: Plan) -> list[dict[str, Any]]:
    """Times of get and put, and memory per object, with a growing number of objects in the store."""
    points: list[dict[str, Any]] = []
    with running_system(under_test, ENTREPOT, max(512 * MIB, plan.scale_objects * OBJECT_COST)) as running:
        worker = running.worker()
        empty = worker.call("status")["status"]
        for total in _powers(plan.scale_objects, 10):
            filled = worker.call("fill", total=total, nbytes=OBJECT_BYTES, most_seconds=FILL_SECONDS)
            reader = running.worker()
            got = reader.call("get", tokens=filled["tokens"], count=plan.small_count * 2, nbytes=0)
            worker.call("value", kind="bytes", nbytes=OBJECT_BYTES)
            put = worker.call("put", count=plan.small_count, unkept=plan.small_count // 5)
            status = worker.call("status")["status"]
            running.stop_worker(reader)
            points.append(
                {
                    "objects": total,
                    "get": _summary(got["ns"]),
                    "put": _summary(put["ns"]),
                    "fill": median(filled["ns"]) / 1e9 if filled["ns"] else None,
                    "overhead": (status["used_bytes"] - empty["used_bytes"]) / total - OBJECT_BYTES,
                }
            )
    return points


def clients(under_test: SystemsUnderTest, native: Native, plan: Plan) -> list[dict[str, Any]]:
    """C clients in processes of their own, each working as fast as it can; medians over the clients.

    A put replaces the oldest of a client's 64 objects: it is timed without the preceding delete, which does count for
    the puts per second.
    """
    points: list[dict[str, Any]] = []
    for count in _powers(plan.scale_clients, 2):
        with running_system(under_test, ENTREPOT, GIB) as running:
            socket = running.address.removeprefix("unix://")
            try:
                milliseconds = max(CROWD_MS, count * CROWD_MS_EACH)
                figures = native.run("crowd", socket, count, milliseconds, CROWD_BYTES)
            except NativeFailed as error:
                under_test.record_failure(ENTREPOT, f"{count} clients", str(error))
                return points
            point: dict[str, Any] = {"clients": count}
            for name in ("get", "get_p99", "put", "put_p99"):
                point[name] = median(figures[name]) / 1e9
            half = milliseconds / 2000
            point["gets_per_second"] = figures["gets"] / half
            point["puts_per_second"] = figures["puts"] / half
            points.append(point)
    return points


def sizes(
    under_test: SystemsUnderTest, systems: list[System], native: Native | None, plan: Plan
) -> dict[str, list[dict[str, Any]]]:
    """Warm puts and gets of arrays from 1 byte up, and bare copies."""
    series: dict[str, list[dict[str, Any]]] = {}
    steps = list(_powers(plan.scale_bytes, 8))
    for system in systems:
        if ARRAY not in system.kinds or not system.quiet or system.name not in under_test.pythons:
            continue
        points: list[dict[str, Any]] = []
        try:
            with running_system(under_test, system, 2 * plan.scale_bytes + GIB // 2) as running:
                producer, consumer = running.worker(), running.worker()
                for nbytes in steps:
                    producer.call("value", kind="octets", nbytes=nbytes)
                    put = producer.call("put_large", count=1 + SIZE_REPEATS)
                    read = consumer.call(
                        "read", token=put["tokens"][0], kind="octets", nbytes=nbytes, count=1 + SIZE_REPEATS
                    )
                    producer.call("delete")
                    point = {"bytes": nbytes, "put": _summary(put["ns"][1:]), "get": _summary(read["in_hand"][1:])}
                    points.append(point)
        except (Unavailable, WorkerFailed) as error:
            under_test.record_failure(system, f"sizes, after {len(points)} of {len(steps)}", str(error))
        series[system.name] = points
    if native is not None:
        series["limit: memcpy"] = []
        for nbytes in steps:
            copied = native.run("copies", nbytes, SIZE_REPEATS, "shared", 1)["memcpy"]
            series["limit: memcpy"].append({"bytes": nbytes, "put": _summary(copied)})
    return series


def fragmentation(under_test: SystemsUnderTest, plan: Plan) -> dict[str, Any]:
    """A store kept half full of values of random sizes, put and deleted at random: a day at one put per second."""
    with running_system(under_test, ENTREPOT, CHURN_CAPACITY) as running:
        worker = running.worker()
        churned = worker.call(
            "churn", puts=plan.scale_puts, capacity=CHURN_CAPACITY, most_seconds=FILL_SECONDS, points=60
        )
        # Actually put a large value into the gaps rather than only compute whether it fits; by a client that owns none
        # of them.
        newcomer = running.worker()
        large = int(newcomer.call("status")["status"]["largest_lease_bytes"] * LARGE_SHARE) // MIB * MIB
        took = None
        try:
            newcomer.call("value", kind="octets", nbytes=large)
            took = newcomer.call("put_large", count=1)["ns"][0] / 1e9
        except WorkerFailed as error:
            under_test.record_failure(ENTREPOT, "a large value after the churn", str(error))
    return {"capacity": CHURN_CAPACITY, "large": large, "large_seconds": took, **churned}


def _summary(ns: list[int]) -> dict[str, float]:
    ordered = sorted(ns)
    return {
        name: quantile(ordered, share) / 1e9
        for name, share in (("median", 0.5), ("p5", 0.05), ("p95", 0.95), ("p99", 0.99))
    }
