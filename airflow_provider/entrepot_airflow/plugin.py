"""Airflow's plugin: the listener, where there is a policy.

Without one there is none in the processes of tasks: Airflow does less for tasks of a deployment that has listeners. The
scheduler has one in any case, which gives back the memory of runs that were deleted.
"""

from __future__ import annotations

import sys

from airflow.plugins_manager import AirflowPlugin

from entrepot_airflow.configuration import policy_path


def _listeners() -> list[object]:
    found: list[object] = []
    if policy_path():
        from entrepot_airflow import listener

        found.append(listener)
    if "scheduler" in sys.argv[1:2]:
        from entrepot_airflow import sweeping

        found.append(sweeping)
    return found


class EntrepotPlugin(AirflowPlugin):
    """Found by its entry point ``airflow.plugins``."""

    name = "entrepot"
    listeners = _listeners()
