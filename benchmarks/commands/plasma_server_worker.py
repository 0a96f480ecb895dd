"""Client of ``python -m benchmarks plasma``, with pyarrow 11; prints JSON.

``plasma_server_worker.py small BLOCKS SOCKET SOCKET``: seconds of small calls, in blocks of which both servers have one
in turn. ``large|full SOCKET``: seconds of the first and of later puts of 1 GiB, or how many of the objects put can be
read.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

plasma: Any = importlib.import_module("pyarrow.plasma")  # not in today's pyarrow

MIB = 1 << 20
LATER = 5
SETTLE_SECONDS = 4.0  # our store replaces the warm memory that the first put took
OBJECTS = 32
OBJECT_BYTES = 64 * MIB
KIB = 1 << 10
BLOCK_CALLS = 50
FIRST_CALLS = 5  # of a block, not timed: the server has slept during the other's block


def small(blocks: int, clients: "list[Any]") -> "dict[str, list[list[list[float]]]]":
    """Seconds of each call, by kind, client and block."""
    value = b"x" * KIB
    puts: dict[str, Callable[[Any], Any]] = {
        "put 1 KiB of bytes": lambda client: client.put(value),
        "put_raw_buffer 1 KiB": lambda client: client.put_raw_buffer(value),
        "create and seal 1 KiB": create,
    }
    gets: dict[str, Callable[[Any, Any], Any]] = {
        "get 1 KiB of bytes": lambda client, object_id: client.get(object_id),
        "get_buffers 1 KiB": lambda client, object_id: client.get_buffers([object_id]),
    }
    seconds: dict[str, list[list[list[float]]]] = {}
    for name, put in puts.items():

        def put_block(client: Any, put: "Callable[[Any], Any]" = put) -> "list[float]":
            ids: list[Any] = []
            times = timed(lambda: ids.append(put(client)))
            client.delete(ids)
            return times

        seconds[name] = in_turn(blocks, clients, put_block)
    stored = {client: client.put(value) for client in clients}
    for name, get in gets.items():

        def get_block(client: Any, get: "Callable[[Any, Any], Any]" = get) -> "list[float]":
            return timed(lambda: get(client, stored[client]))

        seconds[name] = in_turn(blocks, clients, get_block)
    for client, object_id in stored.items():
        client.delete([object_id])
    return seconds


def in_turn(blocks: int, clients: "list[Any]", block: "Callable[[Any], list[float]]") -> "list[list[list[float]]]":
    """Blocks of each client; who is first changes from pair to pair."""
    seconds: list[list[list[float]]] = [[] for _ in clients]
    for number in range(blocks):
        for place in range(len(clients)):
            side = (number + place) % len(clients)
            seconds[side].append(block(clients[side]))
    return seconds


def timed(call: "Callable[[], object]") -> "list[float]":
    """Seconds of each call of one block."""
    for _ in range(FIRST_CALLS):
        call()
    seconds = []
    for _ in range(BLOCK_CALLS):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return seconds


def create(client: Any) -> Any:
    """Create and seal 1 KiB."""
    object_id = plasma.ObjectID.from_random()
    client.create(object_id, KIB)
    client.seal(object_id)
    return object_id


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
    part, *rest = sys.argv[1:]
    if part == "small":
        print(json.dumps(small(int(rest[0]), [plasma.connect(socket) for socket in rest[1:]])))
    else:
        print(json.dumps({"large": large, "full": full}[part](plasma.connect(rest[0]))))
