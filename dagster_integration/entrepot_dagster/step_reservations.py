"""Reservations for steps: the option ``reserve``, and the tag ``entrepot/reserve`` of an op.

Dagster asks an IO manager for one value at a time, so a step reserves before its first input is read, and a step that
reads none from the store before its first output is written. The end of a step passes through its log, and so reaches
the log's handlers.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dagster import DagsterEvent, DagsterEventType
from entrepot_io.settings import Settings, reserve_setting

from entrepot_dagster.compat.steps import executing_step
from entrepot_dagster.values.read_only_advice import EVENT_ATTRIBUTE

if TYPE_CHECKING:
    from dagster import InputContext, OutputContext, StepExecutionContext
    from entrepot_io.task_reservations import TaskReservation

RESERVE_TAG = "entrepot/reserve"
_ENDS = (DagsterEventType.STEP_SUCCESS, DagsterEventType.STEP_FAILURE, DagsterEventType.STEP_UP_FOR_RETRY)


class StepReservations:
    """The reservations of the steps that one IO manager serves, one after another."""

    def __init__(self) -> None:
        self._attempt: tuple[str, str, int] | None = None  # the latest one that has begun
        self._reservation: TaskReservation | None = None

    def begin(self, context: InputContext | OutputContext, settings: Settings, scope: str) -> None:
        """Reserve for the step that reads or writes a value, unless that was done for its earlier values.

        Args:
            context: context of the value.
            settings: the IO manager's settings; the op's tag takes precedence over ``reserve``.
            scope: the deployment.

        Raises:
            InvalidArgument: the op's tag is malformed.
        """
        step = executing_step(context)
        if step is None:
            return
        attempt = (step.run_id, step.step.key, step.previous_attempt_count)
        if attempt == self._attempt:
            return
        self.end(succeeded=False)  # of a step whose end was not seen
        self._attempt = attempt
        settings = _settings_of(step, settings)
        if settings.reserve is None:
            return
        from entrepot_io.task_reservations import begin_task  # not where nothing is reserved

        self._reservation = begin_task(settings, scope, step.job_name, _task_name(step))
        if self._reservation is not None:
            context.log.addHandler(_EndOfStep(self, attempt))

    def end(self, *, succeeded: bool, of_attempt: tuple[str, str, int] | None = None) -> None:
        """Release what the current step has reserved.

        Args:
            succeeded: whether the step has stored all of its outputs.
            of_attempt: only if it is this attempt's.
        """
        if of_attempt is not None and of_attempt != self._attempt:
            return
        ended, self._reservation = self._reservation, None
        if ended is not None:
            ended.end(succeeded=succeeded)


class _EndOfStep(logging.Handler):
    """Handler of a step's log that waits for the event of its end."""

    def __init__(self, reservations: StepReservations, attempt: tuple[str, str, int]) -> None:
        super().__init__()
        self._reservations = reservations
        self._attempt = attempt

    def emit(self, record: logging.LogRecord) -> None:
        event: Any = getattr(record, EVENT_ATTRIBUTE, None)
        if isinstance(event, DagsterEvent) and event.event_type in _ENDS:
            succeeded = event.event_type is DagsterEventType.STEP_SUCCESS
            self._reservations.end(succeeded=succeeded, of_attempt=self._attempt)


def _settings_of(step: StepExecutionContext, settings: Settings) -> Settings:
    tag = step.op.tags.get(RESERVE_TAG)
    return settings if tag is None else replace(settings, reserve=reserve_setting(tag))


def _task_name(step: StepExecutionContext) -> str:
    """Return the same name for all of an op's mapped steps: its path in the graph."""
    return str(step.node_handle)
