"""Airflow plugin: registers the listeners, and the page that shows what tasks have passed on.

Tasks' processes get the listeners of what is in use only, because Airflow does less for tasks of a deployment without
any: a policy, values made in the store (the default where XComs go through it), reservations. The scheduler always has
one, which frees the memory of deleted runs.
"""

from __future__ import annotations

import sys
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from entrepot_airflow.compat.api_server import base_path
from entrepot_airflow.configuration import allocates, policy_path, reserves
from entrepot_airflow.page.app import URL_PREFIX, PageApp
from entrepot_airflow.page.link import ValuesLink


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


def _applications() -> list[Any]:
    return [{"app": PageApp(), "url_prefix": URL_PREFIX, "name": "Entrepot"}]


def _views() -> list[Any]:
    instance = "dag_id={DAG_ID}&run_id={RUN_ID}&task_id={TASK_ID}&map_index={MAP_INDEX}"
    return [
        {
            "name": "Entrepot",
            "href": f"{base_path()}{URL_PREFIX}/xcoms?{instance}",
            "destination": "task_instance",
            "url_route": "entrepot",
        }
    ]


def _links() -> list[Any]:
    return [ValuesLink()]


class EntrepotPlugin(AirflowPlugin):
    """Registered by the entry point ``airflow.plugins``."""

    name = "entrepot"
    listeners = _listeners()
    fastapi_apps = _applications()
    external_views = _views()
    global_operator_extra_links = _links()
