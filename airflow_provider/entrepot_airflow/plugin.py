"""Airflow plugin: registers the listeners.

Without a policy or the options ``allocate`` and ``reserve``, tasks' processes get no listener, because Airflow does
less for tasks of a deployment that has listeners. The scheduler always has one, which frees the memory of deleted runs.
"""

from __future__ import annotations

import sys

from airflow.plugins_manager import AirflowPlugin

from entrepot_airflow.configuration import allocates, policy_path, reserves


def _listeners() -> list[object]:
    listeners: list[object] = []
    if policy_path():
        from entrepot_airflow.policy import listener

        listeners.append(listener)
    if allocates():
        from entrepot_airflow import value_memory

        listeners.append(value_memory)
    if reserves():
        from entrepot_airflow import task_reservations

        listeners.append(task_reservations)
    if "scheduler" in sys.argv[1:2]:
        from entrepot_airflow import session_sweeper

        listeners.append(session_sweeper)
    return listeners


class EntrepotPlugin(AirflowPlugin):
    """Registered by the entry point ``airflow.plugins``."""

    name = "entrepot"
    listeners = _listeners()
