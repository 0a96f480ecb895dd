"""Advice, in a step's log, on which setting helps if the step tried to write to a read-only input.

Dagster does not inform an IO manager of a step's failure, and an IO manager with teardown cannot be used outside of
runs. But the failure event passes through the step's log, and so reaches its handlers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from dagster import DagsterEvent, DagsterEventType

from entrepot_dagster.compat.steps import has_step

if TYPE_CHECKING:
    from dagster import InputContext

    from entrepot_dagster.compat.steps import SerializableErrorInfo

COPY_SETTING = 'as EntrepotIOManager(copy="on_write"), or as ENTREPOT_COPY'
EVENT_ATTRIBUTE = "dagster_event"  # attribute of log records that represent a Dagster event


class _ReadOnlyAdviceHandler(logging.Handler):
    """Log handler that waits for the failure of a step that was given a read-only value."""

    def __init__(self, log: logging.Logger) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        event: Any = getattr(record, EVENT_ATTRIBUTE, None)
        if not isinstance(event, DagsterEvent) or event.event_type is not DagsterEventType.STEP_FAILURE:
            return
        if _is_read_only(event.step_failure_data.error):
            from entrepot_io.read_only_errors import advice

            self._log.error(advice(COPY_SETTING))


def add_read_only_advice(context: InputContext) -> None:
    """Note that a step was given a read-only value; if it fails by writing to it, its log will say what helps."""
    if not has_step(context):  # accessing context.log would raise
        return
    log = context.log
    if not any(isinstance(handler, _ReadOnlyAdviceHandler) for handler in log.handlers):
        log.addHandler(_ReadOnlyAdviceHandler(log))


def _is_read_only(error: SerializableErrorInfo | None) -> bool:
    from entrepot_io.read_only_errors import is_read_only_message

    while error is not None:
        if is_read_only_message(error.cls_name or "", error.message):
            return True
        error = error.cause or error.context
    return False
