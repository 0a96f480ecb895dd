"""Entrepot plugin for Apache Airflow: XComs passed by reference, through shared memory.

    AIRFLOW__CORE__XCOM_BACKEND=entrepot_airflow.EntrepotXComBackend

Importing this package imports nothing heavy, because Airflow loads it in all its processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from entrepot.lazy_imports import lazy_names

if TYPE_CHECKING:
    from entrepot_airflow.callbacks import FailoverNotifier as FailoverNotifier
    from entrepot_airflow.callbacks import on_failure as on_failure
    from entrepot_airflow.callbacks import on_retry as on_retry
    from entrepot_airflow.pods.pod_operator_callback import DataLocalityCallback as DataLocalityCallback
    from entrepot_airflow.pods.pod_placement import pod_override as pod_override
    from entrepot_airflow.policy.retry_policy import PolicyRetries as PolicyRetries
    from entrepot_airflow.policy.task_state import last_checkpoint as last_checkpoint
    from entrepot_airflow.values.value_options import store_options as store_options
    from entrepot_airflow.values.value_options import stored as stored
    from entrepot_airflow.xcom import EntrepotXComBackend as EntrepotXComBackend

    FollowData = DataLocalityCallback  # its former name

_HOME = {
    "DataLocalityCallback": "entrepot_airflow.pods.pod_operator_callback",
    "EntrepotXComBackend": "xcom",
    "FailoverNotifier": "callbacks",
    "PolicyRetries": "entrepot_airflow.policy.retry_policy",
    "last_checkpoint": "entrepot_airflow.policy.task_state",
    "on_failure": "callbacks",
    "on_retry": "callbacks",
    "pod_override": "entrepot_airflow.pods.pod_placement",
    "store_options": "entrepot_airflow.values.value_options",
    "stored": "entrepot_airflow.values.value_options",
}
_DEPRECATED = {"FollowData": "DataLocalityCallback"}

__all__ = [
    "DataLocalityCallback",
    "EntrepotXComBackend",
    "FailoverNotifier",
    "PolicyRetries",
    "last_checkpoint",
    "on_failure",
    "on_retry",
    "pod_override",
    "store_options",
    "stored",
]

_lazy, __dir__ = lazy_names(__name__, _HOME, _DEPRECATED)


def __getattr__(name: str) -> Any:
    if name == "EntrepotXComBackend":
        # Airflow looks up its backend, which is this class, while it imports the class's own base module. So import
        # that first, and not from within the class's module, which would then be half initialized.
        from entrepot_airflow.compat.task_process import import_backend_lookup

        import_backend_lookup()
    return _lazy(name)
