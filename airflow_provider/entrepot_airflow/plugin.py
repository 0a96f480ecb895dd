"""Airflow's plugin: the listener, where there is a policy.

Without one there is none: Airflow does less for tasks of a deployment that has listeners.
"""

from __future__ import annotations

from airflow.plugins_manager import AirflowPlugin

from entrepot_airflow.configuration import policy_path


def _listeners() -> list[object]:
    if not policy_path():
        return []
    from entrepot_airflow import listener

    return [listener]


class EntrepotPlugin(AirflowPlugin):
    """Found by its entry point ``airflow.plugins``."""

    name = "entrepot"
    listeners = _listeners()
