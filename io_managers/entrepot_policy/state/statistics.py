"""Measurements, kept in the store: each task's duration, failures and bytes, each target's speed.

Records are small, and limited to ``MAX_TASKS`` tasks; the least recently written is removed. They are in a session of
their own in the scope, so that they outlive runs. Two processes that write one at the same time may lose one of two
measurements, which a running mean tolerates. Nor does a task fail because the store has no space for them, or is
unavailable: what cannot be read counts as never measured, what cannot be written is dropped.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from entrepot.errors import EntrepotError

from entrepot_policy.rules.match_target import Task
from entrepot_policy.state import records

if TYPE_CHECKING:
    from entrepot import Store

SESSION = "entrepot.statistics"
TTL_SECONDS = 90 * 86400.0
MAX_TASKS = 4096
WEIGHT = 0.3  # of the newest value in a running mean
_TASK, _TARGET, _LOSSES = "task/", "target/", "losses"

S = TypeVar("S", "TaskStatistics", "TargetStatistics", "LossStatistics")


@dataclass
class TaskStatistics:
    """One task over all its runs.

    Attributes:
        runs: number of runs begun.
        failures: number of failed attempts.
        seconds: running mean of a run's duration.
        nbytes: running mean of the bytes it wrote.
        lifetime: running mean of the seconds from an output's writing to its last known read; 0: none was seen.
        last_run: the last run counted, so that a retry does not count as another run.
    """

    runs: int = 0
    failures: int = 0
    seconds: float = 0.0
    nbytes: float = 0.0
    lifetime: float = 0.0
    last_run: str = ""


@dataclass
class TargetStatistics:
    """One target.

    Attributes:
        writes: number of checkpoints written to it.
        write_rate: running mean, bytes per second.
        loads: number of checkpoints loaded.
        read_rate: running mean, bytes per second.
        latency: running mean of the seconds that a small checkpoint takes.
    """

    writes: int = 0
    write_rate: float = 0.0
    loads: int = 0
    read_rate: float = 0.0
    latency: float = 0.0


@dataclass
class LossStatistics:
    """Losses of values in this store.

    Attributes:
        losses: how many were noticed; each loss of a store counts once.
        since: time of the first measurement, in seconds since 1970; 0: none.
        last_instance: the store in which the last one was noticed.
    """

    losses: int = 0
    since: float = 0.0
    last_instance: str = ""


class Statistics:
    """The measurements of a scope. As thread-safe as a store.

    Args:
        open_store: any session of the scope.
    """

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store
        self._session: Store | None = None

    def task(self, task: Task) -> TaskStatistics:
        """The measurements of a task."""
        return self._read(_TASK + _task_name(task), TaskStatistics)

    def target(self, template: str) -> TargetStatistics:
        """The measurements of a target."""
        return self._read(_TARGET + _digest(template), TargetStatistics)

    def losses(self) -> LossStatistics:
        """The observed losses."""
        return self._read(_LOSSES, LossStatistics)

    def record_run_start(self, task: Task) -> int:
        """Count a run, unless it is a retry of the last one; returns the number of the run, from 1 on."""
        measured = self.task(task)
        if measured.last_run != task.run or not measured.runs:
            measured.runs += 1
            measured.last_run = task.run
            self._write(_TASK + _task_name(task), measured, bounded=measured.runs == 1)
        return measured.runs

    def record_run_end(self, task: Task, seconds: float, nbytes: int) -> None:
        """Record a run's duration and bytes written."""
        measured = self.task(task)
        first = measured.seconds == 0.0
        measured.seconds = mean(measured.seconds, seconds, first)
        measured.nbytes = mean(measured.nbytes, nbytes, first)
        self._write(_TASK + _task_name(task), measured)
        self._start_observation()

    def record_failed_attempt(self, task: Task) -> None:
        """Count a failed attempt."""
        measured = self.task(task)
        measured.failures += 1
        self._write(_TASK + _task_name(task), measured)

    def record_output_read(self, task: Task, age_seconds: float) -> None:
        """Record that an output of a task was read ``age_seconds`` after it was written."""
        measured = self.task(task)
        # The last use is what counts: a later read replaces the value, an earlier one hardly changes it.
        measured.lifetime = max(age_seconds, mean(measured.lifetime, age_seconds, measured.lifetime == 0.0))
        self._write(_TASK + _task_name(task), measured)

    def record_checkpoint_write(self, template: str, nbytes: int, seconds: float) -> None:
        """Record that a checkpoint was written."""
        measured = self.target(template)
        if nbytes < 1 << 20:
            measured.latency = mean(measured.latency, seconds, measured.latency == 0.0)
        else:
            measured.write_rate = mean(measured.write_rate, nbytes / max(seconds, 1e-6), measured.write_rate == 0.0)
        measured.writes += 1
        self._write(_TARGET + _digest(template), measured)

    def record_checkpoint_load(self, template: str, nbytes: int, seconds: float) -> None:
        """Record that a checkpoint was loaded."""
        measured = self.target(template)
        if nbytes >= 1 << 20:
            measured.read_rate = mean(measured.read_rate, nbytes / max(seconds, 1e-6), measured.read_rate == 0.0)
        measured.loads += 1
        self._write(_TARGET + _digest(template), measured)

    def record_loss(self, instance: str) -> None:
        """Record that values of a store were lost; many values count as one loss."""
        measured = self.losses()
        if measured.last_instance != instance:
            measured.losses += 1
            measured.last_instance = instance
            measured.since = measured.since or time.time()
            self._write(_LOSSES, measured)

    def _start_observation(self) -> None:
        measured = self.losses()
        if not measured.since:
            measured.since = time.time()
            self._write(_LOSSES, measured)

    # --- records

    def _read(self, key: str, kind: type[S]) -> S:
        try:
            data = records.get(self._open_store(), key, session=SESSION) or {}
            return kind(
                **{field.name: _coerce(data[field.name], field.default) for field in fields(kind) if field.name in data}
            )
        except (EntrepotError, TypeError, ValueError):
            return kind()

    def _write(
        self, key: str, measured: TaskStatistics | TargetStatistics | LossStatistics, *, bounded: bool = False
    ) -> None:
        with suppress(EntrepotError):
            # Kept open: closing the session of a durable scope would wait for all pending write-behind.
            store = self._session
            if store is None or store.closed:
                store = self._session = self._open_store().session(SESSION, ttl=TTL_SECONDS)
            if bounded:
                _remove_oldest(store)
            records.put(store, key, asdict(measured), name=key)


def mean(previous: float, new: float, first: bool = False) -> float:
    """A running mean, updated with the new value."""
    return new if first else previous + WEIGHT * (new - previous)


def _remove_oldest(store: Store) -> None:
    entries = store.list(f"{_TASK}*")
    entries.sort(key=lambda entry: entry.created)
    for entry in entries[: max(0, len(entries) - MAX_TASKS + 1)]:
        for name in entry.names:
            records.remove(store, name)


def _task_name(task: Task) -> str:
    """A task over all its runs."""
    return _digest("\0".join((task.orchestrator, task.pipeline, task.name)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _coerce(value: Any, default: Any) -> Any:
    if isinstance(default, float):
        return float(value)
    if not isinstance(value, type(default)):
        raise TypeError(f"{value!r} is not of type {type(default).__name__}")
    return value
