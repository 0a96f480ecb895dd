"""Duration of an orchestrator's save and load calls, and the bytes they move.

A meter writes one JSON line per call into a file of its process, so processes never wait for each other. A call's bytes
are those that the process transfers by system calls meanwhile (files, pipes and sockets, as counted by the kernel in
``/proc/self/io``). Bytes copied into shared memory involve no system call; :mod:`examples.flights.measure.stored`
counts them.
"""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from examples.flights.measure import stored

# Modules that values need in the reading process with any transport: imported before the timing starts. What a
# transport needs for itself is imported within the measured time.
PRELOADED_MODULES = {
    "model": "sklearn.ensemble",
    "train": "sklearn.ensemble",
    # The hand-off benchmark's tasks; in Airflow they name the values, and no process has imported pandas before a read.
    "make": "pandas",
    "replace": "pandas",
}
ANSWER_NAME = "report"  # the end of the job, not passed to any task
FOLDER_VARIABLE = "FLIGHTS_METER"  # where a task's process writes its lines; unset: nothing is measured
BLOBS_VARIABLE = "FLIGHTS_METER_BLOBS"  # if set, what is copied into the store is recorded as well
Direction = Literal["write", "read"]


@dataclass(frozen=True)
class Call:
    """One save or load.

    Attributes:
        direction: ``"write"`` for a save, ``"read"`` for a load.
        what: the value, by the orchestrator's name.
        seconds: duration of the call.
        written: bytes that the process wrote by system calls meanwhile.
        read: bytes that it read.
        begin: when, in seconds since the epoch.
        pid: of the process.
    """

    direction: Direction
    what: str
    seconds: float
    written: int
    read: int
    begin: float
    pid: int


def io_counters() -> tuple[int, int]:
    """Bytes that this process has written and read by system calls so far."""
    counters: dict[str, int] = {}
    for line in Path("/proc/self/io").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        counters[name] = int(value)
    return counters["wchar"], counters["rchar"]


class Meter:
    """Measures calls in this process.

    Args:
        folder: directory for the lines; created if missing. ``None``: calls run unmeasured.
        blobs: whether to record, after each save and outside the measured time, what it copied into the store.
    """

    def __init__(self, folder: Path | None, *, blobs: bool = False) -> None:
        self._folder = folder
        self._blobs = blobs

    @staticmethod
    def from_environment() -> Meter:
        """The meter of the directory that ``FLIGHTS_METER`` names."""
        folder = os.environ.get(FOLDER_VARIABLE)
        return Meter(Path(folder) if folder else None, blobs=bool(os.environ.get(BLOBS_VARIABLE)))

    @staticmethod
    def variables(folder: Path, *, blobs: bool) -> dict[str, str]:
        """The variables for :meth:`from_environment` in another process."""
        environment = {FOLDER_VARIABLE: str(folder)}
        return environment | {BLOBS_VARIABLE: "1"} if blobs else environment

    @contextmanager
    def call(self, direction: Direction, what: str) -> Iterator[None]:
        """Measure the block. A call that raises is not recorded: a failed run has no figures."""
        start_state = self.start(direction, what)
        yield
        self.finish(direction, what, start_state)

    @staticmethod
    def start(direction: Direction, what: str) -> tuple[float, float, int, int]:
        """The state before a call, for :meth:`finish`; for orchestrators with separate hooks before and after."""
        if direction == "read" and what in PRELOADED_MODULES:
            importlib.import_module(PRELOADED_MODULES[what])
        written, read = io_counters()
        return time.time(), time.perf_counter(), written, read

    def finish(self, direction: Direction, what: str, start_state: tuple[float, float, int, int]) -> None:
        """Record a call that began with :meth:`start`."""
        end = time.perf_counter()
        begin, clock, written_before, read_before = start_state
        written, read = io_counters()
        # Reading the counters itself reads about a hundred bytes; this is equally part of every call.
        call = Call(direction, what, end - clock, written - written_before, read - read_before, begin, os.getpid())
        if self._folder is None or what == ANSWER_NAME:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        line = json.dumps(asdict(call)) + "\n"
        with (self._folder / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(line)
        if self._blobs and direction == "write":
            stored.record_blobs(self._folder)


def read_calls(folder: Path) -> list[Call]:
    """All calls recorded in a directory, ordered by start time."""
    calls = [
        Call(**json.loads(line))
        for file in folder.glob("*.jsonl")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    return sorted(calls, key=lambda call: call.begin)


@dataclass(frozen=True)
class CallTotals:
    """Totals of a run's calls.

    Attributes:
        writes, reads: number of saves and loads.
        write_seconds, read_seconds: their total durations.
        written, read: bytes transferred by system calls, in saves and loads together.
    """

    writes: int
    reads: int
    write_seconds: float
    read_seconds: float
    written: int
    read: int

    @staticmethod
    def of(calls: Iterable[Call]) -> CallTotals:
        """Sum up calls."""
        calls = list(calls)
        writes = [call for call in calls if call.direction == "write"]
        reads = [call for call in calls if call.direction == "read"]
        return CallTotals(
            writes=len(writes),
            reads=len(reads),
            write_seconds=sum(call.seconds for call in writes),
            read_seconds=sum(call.seconds for call in reads),
            written=sum(call.written for call in calls),
            read=sum(call.read for call in calls),
        )
