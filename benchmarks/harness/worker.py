"""A producer or consumer process: reads operations from standard input, one JSON object per line, and replies likewise.

Run by the interpreter of the system that it uses, so it needs nothing but the standard library and that system.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from benchmarks.harness import growth, values
from benchmarks.harness.processes import cpu_ns
from benchmarks.systems.base import BYTES, Client

now = time.perf_counter_ns
FILL_BATCH = 1000
# Number of gets of a large value, unless they take longer than this.
QUICK_GETS, QUICK_SECONDS = 30, 1.0
FILL_SAMPLE = 1000


class Worker:
    """The operations. Times are lists of nanoseconds, one per operation unless stated otherwise."""

    _client: Client
    _kind = ""
    _nbytes = 0
    _value: Any = None

    def __init__(self) -> None:
        self._tokens: list[Any] = []
        self._server: list[int] = []
        self._filled = 0
        self._sample: list[Any] = []

    def watch(self, pids: list[int]) -> dict[str, Any]:
        """Count the processor time of these processes, the server's, together with this one's."""
        self._server = pids
        return {}

    def _cpu(self) -> int:
        return time.process_time_ns() + cpu_ns(self._server)

    def open(self, module: str, name: str, address: str) -> dict[str, Any]:
        """Connect; the time includes importing the system."""
        begin = now()
        self._client = getattr(importlib.import_module(module), name)()
        self._client.connect(address)
        return {"ns": now() - begin, "versions": self._client.versions()}

    def value(self, kind: str, nbytes: int) -> dict[str, Any]:
        """Make the value to be put from now on, and read it once.

        On a virtual machine the first pass over newly allocated memory can take twice as long as later ones, for any
        program, even a plain copy. What is to be measured is the store's own first use.
        """
        self._kind, self._nbytes = kind, nbytes
        self._value = None
        self._value = values.make(kind, nbytes)
        if kind != BYTES:
            values.touch(kind, self._value)
        return {}

    def put(self, count: int, at: float = 0.0, keep: bool = False, unkept: int = 0) -> dict[str, Any]:
        """Put the value ``count`` times, after ``unkept`` times for warm-up.

        Args:
            at: when to begin, on the monotonic clock; 0: at once.
            keep: whether to keep the values and return their tokens; otherwise all are deleted.
        """
        put, value = self._client.putter(self._kind), self._value
        tokens = [put(value) for _ in range(unkept)]
        if tokens:
            self._client.delete(tokens)
        tokens = []
        times: list[int] = []
        gc.collect()
        while at and time.monotonic() < at:
            pass
        cpu = self._cpu()
        for _ in range(count):
            begin = now()
            token = put(value)
            times.append(now() - begin)
            tokens.append(token)
        cpu = self._cpu() - cpu
        answer: dict[str, Any] = {"ns": times, "cpu_ns": cpu}
        if keep:
            self._tokens.extend(tokens)
            answer["tokens"] = [self._client.to_text(token) for token in tokens]
        else:
            self._client.delete(tokens)
        return answer

    def put_large(self, count: int) -> dict[str, Any]:
        """Put the value ``count`` times, deleting the previous one each time; keeps the last."""
        put = self._client.putter(self._kind)
        times: list[int] = []
        cpus: list[int] = []
        tokens: list[Any] = []
        for _ in range(count):
            if tokens:
                self._client.delete(tokens)
                tokens.clear()
            cpu = self._cpu()
            begin = now()
            tokens.append(put(self._value))
            times.append(now() - begin)
            cpus.append(self._cpu() - cpu)
        self._tokens = tokens
        return {"ns": times, "cpus_ns": cpus, "tokens": [self._client.to_text(token) for token in tokens]}

    def get(self, tokens: list[str], count: int, nbytes: int) -> dict[str, Any]:
        """Get bytes by tokens in random order, after a warm-up pass, which checks them unless nbytes is 0."""
        object_ids = [self._client.from_text(token) for token in tokens]
        get = self._client.getter(BYTES)
        first: list[int] = []
        value: Any = None
        for token in object_ids:
            begin = now()
            value = get(token)
            first.append(now() - begin)
            if nbytes:
                values.check(BYTES, nbytes, value)
        order = random.Random(1).choices(object_ids, k=count)
        times: list[int] = []
        value = None
        gc.collect()
        cpu = self._cpu()
        for token in order:
            begin = now()
            value = get(token)
            times.append(now() - begin)
            value = None  # outside of the timed section
        cpu = self._cpu() - cpu
        self._client.release()
        return {"ns": times, "first_ns": first, "cpu_ns": cpu}

    def read(self, token: str, kind: str, nbytes: int, count: int) -> dict[str, Any]:
        """Get a large value: once, with every byte read twice; then repeatedly; then once more like the first time.

        Args:
            count: least number of gets in the middle; more if they are quick.
        """
        object_id, get = self._client.from_text(token), self._client.getter(kind)
        answer: dict[str, Any] = {"in_hand": [], "first_sum": [], "second_sum": [], "cpus_ns": []}

        def once() -> Any:
            cpu = self._cpu()
            begin = now()
            value = get(object_id)
            answer["in_hand"].append(now() - begin)
            answer["cpus_ns"].append(self._cpu() - cpu)
            return value

        def with_sums() -> None:
            value = once()
            for what in ("first_sum", "second_sum"):
                begin = now()
                values.touch(kind, value)
                answer[what].append(now() - begin)
            values.check(kind, nbytes, value)
            answer["pages"] = values.pages(kind, value)
            del value
            self._client.release()

        with_sums()
        end = time.monotonic() + QUICK_SECONDS
        for number in range(max(count, QUICK_GETS)):
            once()
            self._client.release()
            if number + 1 >= count and time.monotonic() > end:
                break
        with_sums()
        return answer

    def put_many(self, count: int, nbytes: int, batch: int, most_seconds: float) -> dict[str, Any]:
        """Put up to ``count`` different small values in batches; one time per batch.

        Stops after ``most_seconds``: slow systems then have stored fewer.
        """
        times: list[int] = []
        tokens: list[Any] = []
        cpu = 0
        end = time.monotonic() + most_seconds
        for first in range(0, count, batch):
            # Made here rather than in advance: a hundred megabytes of values would hide the memory of the tokens.
            numbers = range(first, min(first + batch, count))
            some = [b"%020d" % number + bytes(nbytes - 20) for number in numbers]
            cpu -= self._cpu()
            begin = now()
            tokens.extend(self._client.put_many(some))
            times.append(now() - begin)
            cpu += self._cpu()
            if time.monotonic() > end:
                break
        self._tokens = tokens
        return {"ns": times, "cpu_ns": cpu, "count": len(tokens)}

    def tokens(self) -> dict[str, Any]:
        """The tokens that this process keeps."""
        return {"tokens": [self._client.to_text(token) for token in self._tokens]}

    def get_many(self, tokens: list[str], nbytes: int, batch: int, most_seconds: float) -> dict[str, Any]:
        """Get values that ``put_many`` stored and keep them all in a list; one time per batch."""
        object_ids = [self._client.from_text(token) for token in tokens]
        times: list[int] = []
        kept: list[Any] = []
        cpu = self._cpu()
        end = time.monotonic() + most_seconds
        for first in range(0, len(object_ids), batch):
            some = object_ids[first : first + batch]
            begin = now()
            kept.extend(self._client.get_many(some))
            times.append(now() - begin)
            if time.monotonic() > end:
                break
        cpu = self._cpu() - cpu
        for number in (0, len(kept) // 2, len(kept) - 1):
            if bytes(memoryview(kept[number])) != b"%020d" % number + bytes(nbytes - 20):
                raise RuntimeError(f"value {number} of many came back changed")
        return {"ns": times, "cpu_ns": cpu, "count": len(kept)}

    def fill(self, total: int, nbytes: int, most_seconds: float) -> dict[str, Any]:
        """Put small values until this process has put ``total``; returns a sample of the tokens, and for each batch the
        time per object.
        """
        times: list[float] = []
        end = time.monotonic() + most_seconds
        while self._filled < total:
            count = min(FILL_BATCH, total - self._filled)
            some = [b"%020d" % number + bytes(nbytes - 20) for number in range(self._filled, self._filled + count)]
            begin = now()
            tokens = self._client.put_many(some)
            times.append((now() - begin) / count)
            self._filled += count
            for token in tokens if total <= FILL_SAMPLE else tokens[:: max(1, total // FILL_SAMPLE)]:
                self._sample.append(token)
            if time.monotonic() > end:
                raise RuntimeError(f"only {self._filled} of {total} objects were put in {most_seconds:.0f} s")
        chosen = random.Random(total).sample(self._sample, min(FILL_SAMPLE, len(self._sample)))
        return {"ns": times, "tokens": [self._client.to_text(token) for token in chosen]}

    def churn(self, puts: int, capacity: int, most_seconds: float, points: int) -> dict[str, Any]:
        """Put arrays of random sizes and delete others at random, with half of the capacity in use; see growth."""
        return growth.churn(self._client, puts, capacity, most_seconds, points)

    def delete(self) -> dict[str, Any]:
        """Delete what this process keeps."""
        self._client.delete(self._tokens)
        self._tokens = []
        return {}

    def affinity(self, cpus: list[int]) -> dict[str, Any]:
        """Bind all threads of this process to these processors."""
        for task in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(task), cpus)
        return {}

    def status(self) -> dict[str, Any]:
        """The system's own status, if it has one."""
        ask: Callable[[], dict[str, Any]] | None = getattr(self._client, "status", None)
        return {"status": ask() if ask is not None else None}

    def close(self) -> dict[str, Any]:
        """Close the connection."""
        self._client.close()
        return {}


def main() -> int:
    """Process operations until standard input ends."""
    # Nothing that a library prints may get between the replies.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("op"))(**request)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
