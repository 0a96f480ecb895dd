"""Entrepot for Apache Airflow: XComs that are handed over by reference, through shared memory.

    AIRFLOW__CORE__XCOM_BACKEND=entrepot_airflow.EntrepotXComBackend

Importing this package imports nothing heavy, because Airflow loads it in all its processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from entrepot_airflow.xcom import EntrepotXComBackend as EntrepotXComBackend

__all__ = ["EntrepotXComBackend"]


def __getattr__(name: str) -> Any:
    if name == "EntrepotXComBackend":
        from entrepot_airflow.xcom import EntrepotXComBackend

        return EntrepotXComBackend
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
