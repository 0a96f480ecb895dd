"""Between an XCom and the store: the whole logic, whichever method Airflow calls it from."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from entrepot_io.connections import session_store
from entrepot_io.handoff import delete_value, get_value, put_value
from entrepot_io.keys import airflow_key
from entrepot_io.plain import stays_inline
from entrepot_io.reference import Reference
from entrepot_io.scopes import folder_scope
from entrepot_io.sessions import run_session
from entrepot_io.settings import Settings, resolve


@dataclass(frozen=True)
class Coordinate:
    """Which XCom. Airflow gives all but the map index; a caller of the class itself may give nothing.

    Attributes:
        dag_id, task_id, run_id: of the task that pushes it.
        map_index: which mapped instance; ``None`` or -1 for none.
        key: the XCom's key.
    """

    dag_id: str | None
    task_id: str | None
    run_id: str | None
    map_index: int | None
    key: str | None


def settings() -> Settings:
    """``ENTREPOT_*``, then the section ``[entrepot]`` of Airflow's configuration, then defaults."""
    from airflow.sdk.configuration import conf

    def configured(name: str) -> str | None:
        found = conf.get("entrepot", name, fallback=None)
        return None if found is None else str(found)

    return resolve(configured=configured)


def default_scope() -> str:
    """The scope of this Airflow installation, from its home folder."""
    return folder_scope("airflow", os.path.expandvars(os.environ.get("AIRFLOW_HOME") or "~/airflow"))


def outgoing(value: Any, coordinate: Coordinate) -> Any:
    """What Airflow keeps in place of ``value``: a reference as a JSON object, or the value if it is small and plain."""
    now = settings()
    if stays_inline(value, now.inline_below):
        return value
    scope = now.scope or default_scope()
    at = coordinate
    if at.dag_id is None or at.task_id is None or at.run_id is None or at.key is None:
        # Not from a task: nothing to derive an ID from, so it gets a random one in a session that ends by itself.
        store = session_store(now.address, scope, run_session("airflow", "detached"), now.session_ttl)
        return put_value(store, None, value).to_dict()
    store = session_store(now.address, scope, run_session("airflow", at.dag_id, at.run_id), now.session_ttl)
    return put_value(store, airflow_key(at.dag_id, at.task_id, at.map_index, at.key), value).to_dict()


def incoming(entry: object) -> Any:
    """The value that a stored reference names."""
    now = settings()
    return get_value(Reference.parse(entry), address=now.address, copy=now.copy)


def discard(entry: object) -> bool:
    """Drop the object that a stored reference names; whether it was there."""
    return delete_value(Reference.parse(entry), address=settings().address)
