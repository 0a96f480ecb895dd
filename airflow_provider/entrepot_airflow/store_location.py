"""Where a hook, an operator or a sensor finds its objects: a connection of type ``entrepot``, and the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from entrepot.errors import InvalidArgument
from entrepot_io.connections import session_store
from entrepot_io.keys import airflow_key, object_name
from entrepot_io.sessions import SCOPE_SESSION, run_session
from entrepot_io.settings import Settings

from entrepot_airflow.configuration import current_settings, default_scope

if TYPE_CHECKING:
    from entrepot import Store

CONNECTION_FIELDS = ("address", "scope", "session")
RETURN_VALUE = "return_value"


@dataclass(frozen=True)
class StoreLocation:
    """A session of a store.

    Attributes:
        address: of the store; None: the one that ``entrepot.connect`` finds.
        scope: name of the installation.
        session: its name; empty: the scope's own, which never expires.
        ttl: seconds that the session lives after its last use, if this creates it.
    """

    address: str | None
    scope: str
    session: str
    ttl: float | None = None

    def open(self) -> Store:
        """Return the session, on this process's connection, which stays open.

        Raises:
            StoreUnavailable: nothing answers at the address.
        """
        return session_store(self.address, self.scope, self.session, self.ttl)


def locate(fields: Mapping[str, Any], session: str | None = None) -> StoreLocation:
    """Return what a connection's fields mean; what they leave out, the configuration says.

    Args:
        fields: the connection's extra fields.
        session: takes precedence over the connection's; None: that one, or the scope's own.

    Raises:
        InvalidArgument: a field that does not exist, or is not a string.
    """
    for name, value in fields.items():
        if name not in CONNECTION_FIELDS:
            raise InvalidArgument(
                f"a connection to Entrepot has no field {name!r}, only {', '.join(CONNECTION_FIELDS)}"
            )
        if value is not None and not isinstance(value, str):
            raise InvalidArgument(f"the field {name} of a connection to Entrepot must be text, not {value!r}")
    settings = current_settings()
    return StoreLocation(
        fields.get("address") or settings.address,
        fields.get("scope") or settings.scope or default_scope(),
        session if session is not None else fields.get("session") or SCOPE_SESSION,
        _ttl(settings),
    )


def _ttl(settings: Settings) -> float | None:
    return settings.session_ttl


def session_of_run(context: Any) -> str:
    """The session with the XComs of a task's DAG run.

    Args:
        context: of the task.
    """
    ti = context["ti"]
    return run_session("airflow", ti.dag_id, ti.run_id)


def name_of_xcom(context: Any, task_id: str, *, key: str = RETURN_VALUE, map_index: int | None = None) -> str:
    """The name that the object of an XCom has in the session of its run.

    Args:
        context: of a task of the same run.
        task_id: the task that pushed it.
        key: of the XCom.
        map_index: of a mapped task; None: it is not mapped.
    """
    return object_name(airflow_key(context["ti"].dag_id, task_id, map_index, key))
