"""XCom backend: a task's result goes to the store, and Airflow stores a small, readable reference.

Airflow runs this in tasks' processes only; its servers, user interface and database see the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.bases.xcom import BaseXCom
from entrepot.errors import EntrepotError
from entrepot_io.plain_log import plain_logger
from entrepot_io.reference import is_reference

from entrepot_airflow.values import read_ahead
from entrepot_airflow.values.observation import observed_read, observed_write
from entrepot_airflow.values.value_options import split
from entrepot_airflow.values.xcom_values import delete_xcom, load_xcom, store_xcom
from entrepot_airflow.xcom_key import XComKey

if TYPE_CHECKING:
    from entrepot_airflow.compat.task_process import XComResult

log = plain_logger(__name__)
read_ahead.install()


class EntrepotXComBackend(BaseXCom):
    """Passes XComs by object ID; set it as ``[core] xcom_backend``.

    Small plain values stay in Airflow's database (``[entrepot] inline_below``). A retried task writes the same object
    again. A value that is gone is an error in the task that reads it, never another value.

    >>> EntrepotXComBackend.serialize_value({"rows": 3})  # small and plain: stays in Airflow's database
    {'rows': 3}
    """

    @staticmethod
    def serialize_value(
        value: Any,
        *,
        key: str | None = None,
        task_id: str | None = None,
        dag_id: str | None = None,
        run_id: str | None = None,
        map_index: int | None = None,
    ) -> str:
        """Return what Airflow stores: the reference, or a small plain value itself.

        Raises:
            StoreFull: the value does not fit.
            UnsupportedType: no codec supports it.
            StoreUnavailable: the store cannot be reached.
        """
        xcom_key = XComKey(dag_id, task_id, run_id, map_index, key)
        entry = observed_write(value, lambda: store_xcom(value, xcom_key), lambda pushed: split(pushed)[0])
        return BaseXCom.serialize_value(entry, key=key, task_id=task_id, dag_id=dag_id, run_id=run_id)

    @staticmethod
    def deserialize_value(result: Any) -> Any:
        """Return the value of Airflow's entry.

        Args:
            result: has the stored entry as ``value``.

        Raises:
            ObjectLost: the value is gone, was replaced, or lives on another host.
            InvalidReference: the entry was damaged.
            StoreUnavailable: the store cannot be reached.
        """
        if is_reference(result.value):
            return observed_read(result.value, lambda: load_xcom(result.value))
        return BaseXCom.deserialize_value(result)

    @classmethod
    def purge(cls, xcom: XComResult, *args: Any) -> None:
        """Delete the object of an XCom that Airflow is about to delete.

        A store that does not answer must not keep a task from running again: the object is then dropped when the
        session's TTL expires, and the log says so.
        """
        if not is_reference(xcom.value):
            return
        try:
            delete_xcom(xcom.value)
        except EntrepotError as error:
            log.warning(
                "Entrepot: cannot delete the object of XCom %r; it stays until its session ends: %s", xcom.key, error
            )
