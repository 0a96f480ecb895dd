"""Client process of the group "beyond memory": runs one operation, with arguments and result as JSON.

Run by the interpreter of the system under test: ``python -m benchmarks.workloads.beyond.client OPERATION ARGUMENTS``.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.systems.base import ARRAY

PAGE_WORDS = 512  # of 8 bytes
PIECE = 4 << 20
now = time.perf_counter


def _array(nbytes: int) -> Any:
    import numpy as np

    return np.random.default_rng(1).integers(0, 1 << 62, nbytes // 8)


def _orders(count: int) -> dict[str, list[int]]:
    import random

    mixed = list(range(count))
    random.Random(5).shuffle(mixed)
    return {"sequential": list(range(count)), "reverse": list(range(count))[::-1], "random": mixed}


def volume(module: str, client: str, address: str, count: int, nbytes: int) -> dict[str, Any]:
    """Put ``count`` arrays, then get all of them in each order, reading one word of every page."""
    import numpy as np

    system = getattr(importlib.import_module(module), client)()
    system.connect(address)
    put, get = system.putter(ARRAY), system.getter(ARRAY)
    base = _array(nbytes)
    expected = base[PAGE_WORDS::PAGE_WORDS].copy()
    tokens = []
    begin = now()
    for number in range(count):
        base[0] = number
        tokens.append(put(base))
    answer: dict[str, Any] = {"put": now() - begin, "orders": {}}
    for name, order in _orders(count).items():
        lost = wrong = 0
        begin = now()
        for number in order:
            if not system.holds(tokens[number]):
                lost += 1
                continue
            value = get(tokens[number])
            if value[0] != number or not np.array_equal(value[PAGE_WORDS::PAGE_WORDS], expected):
                wrong += 1
            del value
            system.release()
        answer["orders"][name] = {"seconds": now() - begin, "lost": lost, "wrong": wrong}
    system.close()
    return answer


def policy(
    address: str, count: int, nbytes: int, passes: int, order: str, name: str, reading: str | None
) -> dict[str, Any]:
    """Put ``count`` arrays into a set with this policy and get all of them repeatedly.

    The first pass is not counted: it depends on what the puts left in memory.
    """
    import random

    import entrepot

    mixer = random.Random(3)
    with entrepot.connect(address, session="bench") as store:
        declared: Any = reading
        chosen: Any = name
        its_set = store.locality_set("scanned", policy=chosen, reading=declared)
        base = _array(nbytes)
        oids = []
        for number in range(count):
            base[0] = number
            oids.append(store.put(base, locality_set=its_set))
        seconds, read = [], []
        for _ in range(passes + 1):
            before = store.status()["spill"]["read_bytes"]
            at = range(count) if order == "sequential" else [mixer.randrange(count) for _ in range(count)]
            begin = now()
            for number in at:
                if store.get(oids[number])[0] != number:
                    raise RuntimeError(f"array {number} came back as another one")
            seconds.append(now() - begin)
            read.append(store.status()["spill"]["read_bytes"] - before)
    return {"seconds": seconds[1:], "read": read[1:]}


def latency(address: str, seconds: float, pause: float) -> dict[str, Any]:
    """Time gets of one resident 1 KiB value, with a pause before each; starts on a line on standard input."""
    import entrepot

    with entrepot.connect(address, session="bench") as store:
        oid = store.put(b"x" * 1024)
        for _ in range(1000):
            store.get(oid)
        print("ready", flush=True)
        sys.stdin.readline()
        times = []
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(pause)
            begin = time.perf_counter_ns()
            store.get(oid)
            times.append(time.perf_counter_ns() - begin)
    times.sort()
    return {"p50": times[len(times) // 2] / 1e9, "p99": times[len(times) * 99 // 100] / 1e9, "samples": len(times)}


def spilling(address: str, seconds: float, nbytes: int, count: int) -> dict[str, Any]:
    """Put and get more than fits for some time; returns the amounts moved."""
    import entrepot

    with entrepot.connect(address, session="bench-load") as store:
        base = _array(nbytes)
        oids: list[Any] = []
        before = store.status()["spill"]
        begin = now()
        copied = turn = 0
        while now() - begin < seconds:
            base[0] = turn
            oids.append(store.put(base))
            copied += nbytes
            if len(oids) > count:
                store.delete(oids.pop(0))
            store.get(oids[turn * 7 % len(oids)])
            turn += 1
        took = now() - begin
        after = store.status()["spill"]
    return {
        "copied": copied / took,
        "written": (after["written_bytes"] - before["written_bytes"]) / took,
        "read": (after["read_bytes"] - before["read_bytes"]) / took,
    }


def plain_load(folder: str, seconds: float, copied: float, written: float, read: float) -> dict[str, Any]:
    """The same load without a store: copies in one thread, direct I/O and a sum of every piece in others."""
    import numpy as np

    path = os.path.join(folder, "plain-load")
    span = 256 << 20
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    os.posix_fallocate(file, 0, span)
    source, target = _array(64 << 20), np.empty((64 << 20) // 8, "i8")
    moved = {"copied": 0, "written": 0, "read": 0}
    lock = threading.Lock()

    def paced(what: str, rate: float, piece: int, work: Callable[[Any, Any, int], None]) -> None:
        buffer = mmap.mmap(-1, PIECE)
        words = np.frombuffer(buffer, "i8")
        done = 0
        while time.monotonic() < end and rate:
            work(buffer, words, done % span)
            done += piece
            with lock:
                moved[what] += piece
            time.sleep(max(0.0, min(start + done / rate, end) - time.monotonic()))

    def write(buffer: Any, words: Any, at: int) -> None:
        words.sum()
        os.pwritev(file, [buffer], at)

    def read_back(buffer: Any, words: Any, at: int) -> None:
        os.preadv(file, [buffer], at)
        words.sum()

    def copy(buffer: Any, words: Any, at: int) -> None:
        np.copyto(target, source)

    first = mmap.mmap(-1, PIECE)
    for at in range(0, span, PIECE):  # data never written would not be read from the disk
        os.pwritev(file, [first], at)
    # As many disk threads as the daemon has.
    works: list[tuple[str, float, int, Callable[[Any, Any, int], None]]]
    works = [("written", written / 2, PIECE, write), ("written", written / 2, PIECE, write)]
    works += [("read", read, PIECE, read_back), ("copied", copied, 64 << 20, copy)]
    start = time.monotonic()
    end = start + seconds
    threads = [threading.Thread(target=paced, args=thread_arguments) for thread_arguments in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - start
    os.close(file)
    os.unlink(path)
    return {what: count / took for what, count in moved.items()}


def fill(address: str, nbytes: int, piece: int, objects: int) -> dict[str, Any]:
    """Put large arrays of ``nbytes`` in total, and ``objects`` objects of 1 KiB; returns an ID of each kind."""
    import entrepot

    with entrepot.connect(address, session="bench") as store:
        base = _array(piece)
        large: list[Any] = [store.put(base) for _ in range(nbytes // piece)]
        small: list[Any] = []
        for first in range(0, objects, 1000):
            values = [(first + i).to_bytes(8, "little") * 128 for i in range(min(1000, objects - first))]
            small += store.put_many(values)
        return {"large": str(large[-1]), "small": str(small[-1]), "objects": store.status()["objects"]}


def first_answers(address: str, small: str, large: str) -> dict[str, Any]:
    """Connect on a line on standard input; returns when it had connected, put and got, on time.monotonic."""
    import entrepot

    print("ready", flush=True)
    sys.stdin.readline()
    with entrepot.connect(address, session="bench-after") as store:
        connected = time.monotonic()
        store.put(b"x" * 1024)
        put = time.monotonic()
        if len(store.get(entrepot.ObjectID(small))) != 1024:
            raise RuntimeError("another value came back")
        got = time.monotonic()
        store.get(entrepot.ObjectID(large))
        got_large = time.monotonic()
        pid = store.status()["pid"]
    return {"connected": connected, "put": put, "got": got, "got_large": got_large, "pid": pid}


OPERATIONS: dict[str, Callable[..., dict[str, Any]]] = {
    operation.__name__: operation for operation in (volume, policy, latency, spilling, plain_load, fill, first_answers)
}


def main() -> int:
    """Run the one operation."""
    answer = OPERATIONS[sys.argv[1]](**json.loads(sys.argv[2]))
    print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
