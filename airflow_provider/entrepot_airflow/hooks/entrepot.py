"""The hook, and the connection type ``entrepot``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from entrepot.errors import EntrepotError

from entrepot_airflow.store_location import StoreLocation, locate

if TYPE_CHECKING:
    from entrepot import Store


class EntrepotHook(BaseHook):
    """Opens a session of the store, for tasks that use objects by name.

        store = EntrepotHook().get_conn()
        store.put(model, name="model")

    Args:
        entrepot_conn_id: a connection of type ``entrepot``. None: none, the settings of ``[entrepot]`` in Airflow's
            configuration apply.
        session: which session; default: the connection's, or the scope's own, which never expires.
    """

    conn_name_attr = "entrepot_conn_id"
    default_conn_name = "entrepot_default"
    conn_type = "entrepot"
    hook_name = "Entrepot"

    def __init__(self, entrepot_conn_id: str | None = None, *, session: str | None = None) -> None:
        super().__init__()
        self.entrepot_conn_id = entrepot_conn_id
        self.session = session

    def location(self) -> StoreLocation:
        """Return which store, scope and session these are.

        Raises:
            AirflowNotFoundException: there is no such connection.
            InvalidArgument: it has a field that does not exist.
        """
        fields: dict[str, Any] = {}
        if self.entrepot_conn_id is not None:
            fields = self.get_connection(self.entrepot_conn_id).extra_dejson
        return locate(fields, self.session)

    def get_conn(self) -> Store:
        """Return the session. Its connection belongs to the process: do not close it.

        Raises:
            StoreUnavailable: nothing answers at the store's address.
            AirflowNotFoundException, InvalidArgument: as for :meth:`location`.
        """
        return self.location().open()

    def test_connection(self) -> tuple[bool, str]:
        """Connect, as the button ``Test`` of the connection's form does; return whether it worked, and a message."""
        try:
            store = self.get_conn()
            status = store.status()
        except EntrepotError as error:
            return False, str(error)
        return True, f"store of host {store.host}: {status['used_bytes']} of {status['capacity_bytes']} bytes in use"

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Fields of the connection's form."""
        return {
            "hidden_fields": ["host", "port", "login", "password", "schema"],
            "relabeling": {},
            "placeholders": {"extra": '{"address": "unix:///run/entrepot/store.sock", "scope": "production"}'},
        }
