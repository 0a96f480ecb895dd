"""Client of ``python -m benchmarks plasma``: ``python plasma_server_worker.py large|full SOCKET``, with pyarrow 11.

Prints JSON: seconds of the first and of later puts of 1 GiB, or how many of the objects put can be read.
"""

import importlib
import json
import sys
import time
from typing import Any

import numpy as np

plasma: Any = importlib.import_module("pyarrow.plasma")  # not in today's pyarrow

MIB = 1 << 20
LATER = 5
SETTLE_SECONDS = 4.0  # our store replaces the warm memory that the first put took
OBJECTS = 32
OBJECT_BYTES = 64 * MIB


def large(client: Any) -> "dict[str, Any]":
    """Put and delete 1 GiB, again and again."""
    value = np.ones(1024 * MIB // 8)
    client.delete([client.put(value[:1])])  # Plasma imports what it serializes with at the first put
    seconds = []
    for number in range(1 + LATER):
        begin = time.perf_counter()
        object_id = client.put(value)
        seconds.append(time.perf_counter() - begin)
        client.delete([object_id])
        if number == 0:
            time.sleep(SETTLE_SECONDS)
    return {"first": seconds[0], "later": seconds[1:]}


def full(client: Any) -> "dict[str, int]":
    """Put twice the memory, and try to read everything."""
    ids = []
    for number in range(OBJECTS):
        object_id = plasma.ObjectID.from_random()
        buffer = client.create(object_id, OBJECT_BYTES)
        np.frombuffer(buffer, np.uint8)[:] = number
        client.seal(object_id)
        ids.append(object_id)
        del buffer
    readable = 0
    for number, object_id in enumerate(ids):
        (buffer,) = client.get_buffers([object_id], timeout_ms=1000)
        if buffer is not None and bool((np.frombuffer(buffer, np.uint8) == number).all()):
            readable += 1
    return {"put": OBJECTS, "readable": readable}


if __name__ == "__main__":
    print(json.dumps({"large": large, "full": full}[sys.argv[1]](plasma.connect(sys.argv[2]))))
