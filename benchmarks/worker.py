"""A producer or consumer process: does what it is told on standard input, one JSON object a line, and answers likewise.

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

from benchmarks import growth, values
from benchmarks.processes import cpu_ns
from benchmarks.systems.base import BYTES, Client

now = time.perf_counter_ns
FILL_BATCH = 1000
# Gets of a large value: so many, unless they take longer than this.
QUICK_GETS, QUICK_SECONDS = 30, 1.0
FILL_SAMPLE = 1000


class Worker:
    """The operations. Times are lists of nanoseconds, one an operation unless said otherwise."""

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
        """Counts the processor time of these processes, the server's, with that of this one."""
        self._server = pids
        return {}

    def _cpu(self) -> int:
        return time.process_time_ns() + cpu_ns(self._server)

    def open(self, module: str, name: str, address: str) -> dict[str, Any]:
        """Connects; the times include importing the system."""
        begin = now()
        self._client = getattr(importlib.import_module(module), name)()
        self._client.connect(address)
        return {"ns": now() - begin, "versions": self._client.versions()}

    def value(self, kind: str, nbytes: int) -> dict[str, Any]:
        """Makes the value that is put from now on, and reads it once.

        On a virtual machine the first pass over memory that was made just now can take twice as long as later ones,
        whoever makes it: a plain copy has the same. What is measured is the store's own first use.
        """
        self._kind, self._nbytes = kind, nbytes
        self._value = None
        self._value = values.make(kind, nbytes)
        if kind != BYTES:
            values.touch(kind, self._value)
        return {}

    def put(self, count: int, at: float = 0.0, keep: bool = False, unkept: int = 0) -> dict[str, Any]:
        """Puts the value ``count`` times after ``unkept`` times for warmth.

        Args:
            at: when to begin, on the monotonic clock; 0: at once.
            keep: whether the tokens are answered; else all is deleted.
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
        """Puts the value ``count`` times, deleting the one before each time; keeps the last."""
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
        """Gets bytes by tokens in random order, after one pass for warmth; that checks them, unless nbytes is 0."""
        known = [self._client.from_text(token) for token in tokens]
        get = self._client.getter(BYTES)
        first: list[int] = []
        value: Any = None
        for token in known:
            begin = now()
            value = get(token)
            first.append(now() - begin)
            if nbytes:
                values.check(BYTES, nbytes, value)
        order = random.Random(1).choices(known, k=count)
        times: list[int] = []
        value = None
        gc.collect()
        cpu = self._cpu()
        for token in order:
            begin = now()
            value = get(token)
            times.append(now() - begin)
            value = None  # outside of the timed stretch
        cpu = self._cpu() - cpu
        self._client.release()
        return {"ns": times, "first_ns": first, "cpu_ns": cpu}

    def read(self, token: str, kind: str, nbytes: int, count: int) -> dict[str, Any]:
        """Gets a large value: once, with every byte read twice; then again and again; then once more as at first.

        Args:
            count: least number of gets in the middle; there are more if they are quick.
        """
        known, get = self._client.from_text(token), self._client.getter(kind)
        answer: dict[str, Any] = {"in_hand": [], "first_sum": [], "second_sum": [], "cpus_ns": []}

        def once() -> Any:
            cpu = self._cpu()
            begin = now()
            value = get(known)
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
        """Puts up to ``count`` different small values in batches; times are one a batch.

        Stops after ``most_seconds``: slow systems then have stored fewer.
        """
        times: list[int] = []
        tokens: list[Any] = []
        cpu = 0
        end = time.monotonic() + most_seconds
        for first in range(0, count, batch):
            # Made here and not before: a hundred megabytes of values would hide what the tokens cost.
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
        """Gets values that ``put_many`` stored and keeps them all, as a list does; times are one a batch."""
        known = [self._client.from_text(token) for token in tokens]
        times: list[int] = []
        kept: list[Any] = []
        cpu = self._cpu()
        end = time.monotonic() + most_seconds
        for first in range(0, len(known), batch):
            some = known[first : first + batch]
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
        """Puts small values until this process has put ``total``; a sample of the tokens, times an object a batch."""
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
        """Puts arrays of random sizes and deletes others at random, half of the capacity alive; see growth."""
        return growth.churn(self._client, puts, capacity, most_seconds, points)

    def delete(self) -> dict[str, Any]:
        """Frees what this process keeps."""
        self._client.delete(self._tokens)
        self._tokens = []
        return {}

    def affinity(self, cpus: list[int]) -> dict[str, Any]:
        """Runs all threads of this process on these processors."""
        for task in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(task), cpus)
        return {}

    def status(self) -> dict[str, Any]:
        """What a system says of itself, where it can be asked."""
        ask: Callable[[], dict[str, Any]] | None = getattr(self._client, "status", None)
        return {"status": ask() if ask is not None else None}

    def close(self) -> dict[str, Any]:
        """Lets go of everything."""
        self._client.close()
        return {}


def main() -> int:
    """Answers until standard input ends."""
    # Whatever a library prints must not get between the answers.
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
