"""The link from a task instance to its page, beside what Airflow itself links to."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from airflow.sdk import BaseOperatorLink
from entrepot_io.reference import is_reference

from entrepot_airflow.compat.api_server import base_path, xcoms_of_instance
from entrepot_airflow.compat.database import database_session
from entrepot_airflow.page.app import URL_PREFIX

MAX_LOOKED_AT = 200


class ValuesLink(BaseOperatorLink):
    """Leads to the page of a task instance that has passed on values through the store."""

    @property
    def name(self) -> str:
        """Name of the link."""
        return "Entrepot values"

    def get_link(self, operator: Any, *, ti_key: Any) -> str:
        """Return the URL; empty, so that there is no link, if the task instance has passed on nothing by reference."""
        instance = (ti_key.dag_id, ti_key.run_id, ti_key.task_id, ti_key.map_index)
        with database_session(own=True) as database:
            entries = xcoms_of_instance(*instance, database, limit=MAX_LOOKED_AT)
        if not any(is_reference(value) for _, value in entries):
            return ""
        query = urlencode(dict(zip(("dag_id", "run_id", "task_id", "map_index"), instance, strict=True)))
        return f"{base_path()}{URL_PREFIX}/xcoms?{query}"
