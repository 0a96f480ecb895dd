"""Measures XCom backends, so that one Airflow can run one DAG per transport.

Airflow has one backend per installation. The demo installs this one, and ``FLIGHTS_XCOM`` defines for each DAG which
backend's own ``set``, ``get_one`` and ``get_all`` to call, and where to write the measurements:

    {"flights_entrepot": {"backend": "entrepot_airflow.EntrepotXComBackend", "meter": "/folder", "blobs": true}, ...}

Airflow imports its backend before a task's first call. So the backends are imported with this module, not in the first
call, whose duration is measured.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

from airflow.sdk.bases.xcom import BaseXCom

from examples.flights.measure.meter import Meter

CONFIG_VARIABLE = "FLIGHTS_XCOM"


def _configured() -> dict[str, tuple[type[BaseXCom], Meter]]:
    """The backend of each DAG, and its meter."""
    by_dag = {}
    for dag_id, settings in json.loads(os.environ.get(CONFIG_VARIABLE, "{}")).items():
        module, _, name = settings["backend"].rpartition(".")
        meter = Meter(Path(settings["meter"]), blobs=settings["blobs"])
        by_dag[dag_id] = (getattr(importlib.import_module(module), name), meter)
    return by_dag


_TRANSPORTS = _configured()


def transport_of(dag_id: str) -> tuple[type[BaseXCom], Meter]:
    """The backend of a DAG, and its meter.

    Raises:
        LookupError: ``FLIGHTS_XCOM`` does not name the DAG.
    """
    if dag_id not in _TRANSPORTS:
        raise LookupError(
            f"{CONFIG_VARIABLE} names no XCom backend for the DAG {dag_id!r}; it has {sorted(_TRANSPORTS)}"
        )
    return _TRANSPORTS[dag_id]


class MeasuredXCom(BaseXCom):
    """Passes every call on to the DAG's own backend and measures it."""

    @classmethod
    def set(cls, key: str, value: Any, *, dag_id: str, task_id: str, **arguments: Any) -> None:
        """Push, measured."""
        backend, meter = transport_of(dag_id)
        with meter.call("write", task_id):
            backend.set(key, value, dag_id=dag_id, task_id=task_id, **arguments)

    @classmethod
    def get_one(cls, *, key: str, dag_id: str, task_id: str, **arguments: Any) -> Any:
        """Pull one, measured."""
        backend, meter = transport_of(dag_id)
        with meter.call("read", task_id):
            return backend.get_one(key=key, dag_id=dag_id, task_id=task_id, **arguments)

    @classmethod
    def get_all(cls, *, key: str, dag_id: str, task_id: str, **arguments: Any) -> Any:
        """Pull several, measured."""
        backend, meter = transport_of(dag_id)
        with meter.call("read", task_id):
            return backend.get_all(key=key, dag_id=dag_id, task_id=task_id, **arguments)

    @classmethod
    def delete(cls, key: str, task_id: str, dag_id: str, run_id: str, map_index: int | None = None) -> None:
        """Delete; not measured, because the job deletes nothing."""
        backend, _ = transport_of(dag_id)
        backend.delete(key, task_id, dag_id, run_id, map_index)
