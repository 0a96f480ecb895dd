"""Listener that lets NumPy and Arrow make a task's large values in the store: the option ``allocate``."""

from __future__ import annotations

from typing import Any

from airflow.listeners import hookimpl
from entrepot.errors import EntrepotError
from entrepot_io.connections import make_values_in_store
from entrepot_io.plain_log import plain_logger

from entrepot_airflow.configuration import allocates, current_settings, default_scope

log = plain_logger(__name__)


@hookimpl
def on_task_instance_running(previous_state: Any, task_instance: Any) -> None:
    """Begin in the task's process, before its code runs.

    Nothing fails here, because the task may pass nothing on; if it does, that fails with the same reason.
    """
    if not allocates():
        return
    try:
        settings = current_settings()
        make_values_in_store(settings.address, settings.scope or default_scope(), required=settings.allocate is True)
    except EntrepotError as error:
        log.warning("Entrepot: the task's values are made in its own memory: %s", error)
