"""One side of ``python -m benchmarks plasma-python``: ``python plasma_python_worker.py MODULE SOCKET CALLS``.

Runs with pyarrow 11 and with today's. Prints JSON: for each kind of call, the seconds that it took at the median and at
the 99th percentile.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

KIB = 1 << 10
MIB = 1 << 20


def main(module: str, socket: str, calls: str) -> None:
    """Measure, and print the figures."""
    plasma = importlib.import_module(module)
    client = plasma.connect(socket)
    count = int(calls)
    small, array, large = b"x" * KIB, np.zeros(KIB // 8), np.zeros(MIB // 8)
    figures = {
        "put 1 KiB of bytes": _timed(client, lambda: client.put(small), count),
        "put_raw_buffer 1 KiB": _timed(client, lambda: client.put_raw_buffer(small), count),
        "put an array of 1 KiB": _timed(client, lambda: client.put(array), count),
        "put an array of 1 MiB": _timed(client, lambda: client.put(large), min(count, 200)),
        "create and seal 1 KiB": _timed(client, lambda: _create(plasma, client), count),
    }
    for name, value in (("1 KiB of bytes", small), ("an array of 1 KiB", array), ("an array of 1 MiB", large)):
        figures[f"get {name}"] = _timed_get(client, client.put(value), count)
    object_id = client.put(small)
    figures["get_buffers 1 KiB"] = _times(lambda: client.get_buffers([object_id]), count)
    figures["contains"] = _times(lambda: client.contains(object_id), count)
    client.delete([object_id])
    print(json.dumps(figures))


def _create(plasma: Any, client: Any) -> Any:
    object_id = plasma.ObjectID.from_random()
    client.create(object_id, KIB)
    client.seal(object_id)
    return object_id


def _timed(client: Any, make: Callable[[], Any], count: int) -> "dict[str, float]":
    """Time calls that return IDs; delete the objects in between."""
    ids: list[Any] = []
    figures = _times(lambda: ids.append(make()), count)
    client.delete(ids)
    return figures


def _timed_get(client: Any, object_id: Any, count: int) -> "dict[str, float]":
    figures = _times(lambda: client.get(object_id), count)
    client.delete([object_id])
    return figures


def _times(call: Callable[[], object], count: int) -> "dict[str, float]":
    for _ in range(min(count, 200)):
        call()
    seconds = []
    for _ in range(count):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    seconds.sort()
    return {"median": seconds[len(seconds) // 2], "p99": seconds[len(seconds) * 99 // 100]}


if __name__ == "__main__":
    main(*sys.argv[1:])
