"""Names the setting that helps a step which wrote into what it got, in the run's log.

Dagster tells an IO manager nothing of a step's failure, and one with an end of its own cannot be used outside of runs.
The step's log does tell its handlers: the event of the failure goes through it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from dagster import DagsterEvent, DagsterEventType

if TYPE_CHECKING:
    from dagster import InputContext
    from dagster_shared.error import SerializableErrorInfo

WHERE = 'as EntrepotIOManager(copy="on_write"), or as ENTREPOT_COPY'
EVENT = "dagster_event"  # of a log record that stands for one


class _Advice(logging.Handler):
    """Waits for the failure of a step that got a value which it may not write into."""

    def __init__(self, log: logging.Logger) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        event: Any = getattr(record, EVENT, None)
        if not isinstance(event, DagsterEvent) or event.event_type is not DagsterEventType.STEP_FAILURE:
            return
        if _is_read_only(event.step_failure_data.error):
            from entrepot_io.read_only import advice

            self._log.error(advice(WHERE))


def got_read_only(context: InputContext) -> None:
    """A step got a value that it may not write into: its log will say what helps, if it fails by writing."""
    if getattr(context, "_step_context", None) is None:  # nobody's step; asking such a context for its log raises
        return
    log = context.log
    if not any(isinstance(one, _Advice) for one in log.handlers):
        log.addHandler(_Advice(log))


def _is_read_only(error: SerializableErrorInfo | None) -> bool:
    from entrepot_io.read_only import says_read_only

    while error is not None:
        if says_read_only(error.cls_name or "", error.message):
            return True
        error = error.cause or error.context
    return False
