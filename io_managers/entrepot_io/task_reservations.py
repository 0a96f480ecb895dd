"""Reservations for tasks: the option ``reserve``, for all orchestrators.

A task reserves before its code runs and releases when its outputs are stored::

    begin_task --> granted, or only measured --end--> ended

How much: a size that the user sets, or what the same task stored in earlier runs. For the latter, the last few runs of
each task are kept in the store, in a session of their own. The option never makes a task fail: what cannot be reserved
is a warning, and the task runs without.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from entrepot.errors import EntrepotError, ObjectLost, ObjectNotFound, StoreFull

from entrepot_io.connections import scope_store, session_store
from entrepot_io.keys import join
from entrepot_io.plain_log import plain_logger
from entrepot_io.settings import MEASURED, Settings
from entrepot_io.values import get_by_key, put_value

if TYPE_CHECKING:
    from entrepot import Reservation

log = plain_logger(__name__)

MEASUREMENTS_SESSION = "entrepot/measured-tasks"
KEPT_RUNS = 5
_KEPT_SECONDS = 30 * 24 * 3600.0  # after the last run of any task of the scope
_MARGIN_PERCENT = 10
_MOST_PERCENT = 75  # of the store's capacity: a task that stores more spills in any case


_lock = threading.Lock()
_running: WeakSet[TaskReservation] = WeakSet()  # guarded by _lock; of this process


class TaskReservation:
    """What one task has reserved. Ends once. Tasks that overlap in one process (threads) are not measured.

    Args:
        settings, scope, pipeline, task: as for :func:`begin_task`.
        reservation: what the store has granted.
        measures: whether what the task stores is kept for its next run.
    """

    def __init__(
        self, settings: Settings, scope: str, pipeline: str, task: str, reservation: Reservation, *, measures: bool
    ) -> None:
        self._settings = settings
        self._scope = scope
        self._pipeline = pipeline
        self._task = task
        self._reservation: Reservation | None = reservation
        self._measures = measures
        with _lock:
            _running.add(self)
            if len(_running) > 1:  # what the process stores cannot be told apart
                for running in _running:
                    running._measures = False

    @property
    def bytes(self) -> int:
        """How many bytes are reserved; 0: the task is only measured, or it has ended."""
        return 0 if self._reservation is None else self._reservation.bytes

    def end(self, *, succeeded: bool) -> None:
        """Release it; ending twice is harmless.

        Args:
            succeeded: whether the task has stored all of its outputs, so that its next run may expect as much.
        """
        reservation, self._reservation = self._reservation, None
        if reservation is None:
            return
        with _lock:
            _running.discard(self)
        reservation.release()
        if not (self._measures and succeeded):
            return
        try:
            measured = _measured_runs(self._settings, self._scope, self._pipeline, self._task)
            runs = [*measured, reservation.used][-KEPT_RUNS:]
            put_value(_measurements(self._settings, self._scope), _key(self._pipeline, self._task), runs)
        except EntrepotError as error:
            log.warning("Entrepot: cannot record how much task %r stored: %s", self._task, error)


def begin_task(settings: Settings, scope: str, pipeline: str, task: str) -> TaskReservation | None:
    """Reserve memory for what a task is going to store, in this process, and wait for it.

    Warns, with the reason, if it is not granted within ``settings.reserve_timeout``, if it is more than the store could
    ever reserve, or if the store cannot be reached; the task then runs without.

    Args:
        settings: the plugin's settings, with ``reserve`` as it is for this task.
        scope: the deployment.
        pipeline, task: name the task in all of its runs.

    Returns:
        The reservation, to be ended with the task; None: the option is off, or nothing could be reserved or measured.
    """
    wanted = settings.reserve
    if wanted is None:
        return None
    measures = wanted == MEASURED
    try:
        store = scope_store(settings.address, scope)
        size = wanted if isinstance(wanted, int) else _expected(settings, scope, pipeline, task)
        try:
            reservation = store.reserve(size, timeout=settings.reserve_timeout)
        except StoreFull as error:
            log.warning("Entrepot: task %r runs without a reservation: %s", task, error)
            if not measures:
                return None
            reservation = store.reserve(0, timeout=0)
    except EntrepotError as error:
        log.warning("Entrepot: task %r runs without a reservation: %s", task, error)
        return None
    return TaskReservation(settings, scope, pipeline, task, reservation, measures=measures)


def _expected(settings: Settings, scope: str, pipeline: str, task: str) -> int:
    """Return how much to reserve for a task: what it stored in one of its last runs, and a margin; 0: unknown."""
    runs = _measured_runs(settings, scope, pipeline, task)
    if not runs:
        return 0
    capacity: int = scope_store(settings.address, scope).status()["capacity_bytes"]
    return min(max(runs) * (100 + _MARGIN_PERCENT) // 100, capacity * _MOST_PERCENT // 100)


def _measured_runs(settings: Settings, scope: str, pipeline: str, task: str) -> list[int]:
    """Return how many bytes the last runs of a task stored, oldest first."""
    try:
        runs: Any = get_by_key(_measurements(settings, scope), _key(pipeline, task))
    except (ObjectNotFound, ObjectLost):
        return []
    if not isinstance(runs, list):  # somebody else put a value there
        return []
    return [run for run in runs if isinstance(run, int) and run >= 0]


def _measurements(settings: Settings, scope: str) -> Any:
    return session_store(settings.address, scope, MEASUREMENTS_SESSION, _KEPT_SECONDS)


def _key(pipeline: str, task: str) -> str:
    return join(["stored", pipeline, task])


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    _running.clear()  # the parent's


os.register_at_fork(after_in_child=_after_fork_in_child)
