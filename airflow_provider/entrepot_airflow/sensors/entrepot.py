"""Sensors that wait for objects and collections."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.sdk.configuration import conf
from entrepot.errors import EntrepotError

from entrepot_airflow.hooks.entrepot import EntrepotHook
from entrepot_airflow.store_location import StoreLocation, session_of_run
from entrepot_airflow.triggers.entrepot import EntrepotTrigger
from entrepot_airflow.waiting import is_there


class EntrepotObjectSensor(BaseSensorOperator):
    """Waits until an object has a name, such as one that another DAG or another program puts.

    Its XCom is the object's ID, in hexadecimal digits.

    Args:
        name: of the object, in the session.
        session: name of the session. Default: the connection's, or the scope's own. None with ``this_run``.
        this_run: whether it is the session of this DAG run.
        entrepot_conn_id: as for ``EntrepotHook``.
        deferrable: whether Airflow's triggerer waits, on its host, instead of a worker. Default: ``[operators]
            default_deferrable``.
        poke_interval: seconds between two looks; default: 1, as a look costs microseconds.
    """

    template_fields: Collection[str] = ("name", "session", "entrepot_conn_id")
    ui_color = "#e8f1fa"
    collection = False
    members = 0

    def __init__(
        self,
        *,
        name: str,
        session: str | None = None,
        this_run: bool = False,
        entrepot_conn_id: str | None = None,
        deferrable: bool | None = None,
        poke_interval: float | timedelta = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        self.name = name
        self.session = session
        self.this_run = this_run
        self.entrepot_conn_id = entrepot_conn_id
        self.deferrable = (
            conf.getboolean("operators", "default_deferrable", fallback=False) if deferrable is None else deferrable
        )

    def poke(self, context: Any) -> PokeReturnValue:
        """Look once."""
        oid = is_there(self._location(context), self.name, self.collection, self.members)
        return PokeReturnValue(is_done=oid is not None, xcom_value=oid)

    def execute(self, context: Any) -> Any:
        if not self.deferrable:
            return super().execute(context)
        if (seen := self.poke(context)).is_done:
            return seen.xcom_value
        location = self._location(context)
        self.defer(
            trigger=EntrepotTrigger(
                self.name,
                location.address,
                location.scope,
                location.session,
                self.collection,
                self.members,
                self.poke_interval,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )
        return None

    def execute_complete(self, context: Any, event: dict[str, str]) -> str:
        """Go on after the trigger has fired.

        Raises:
            EntrepotError: what was there was not what the sensor waits for.
        """
        if "error" in event:
            raise EntrepotError(event["error"])
        return event["id"]

    def _location(self, context: Any) -> StoreLocation:
        session = session_of_run(context) if self.this_run else self.session
        return EntrepotHook(self.entrepot_conn_id, session=session).location()


class EntrepotCollectionSensor(EntrepotObjectSensor):
    """Waits until a collection is sealed; it fails if something else has the name.

    Args:
        members: how many members it has to have at least; a smaller one is waited for to be replaced.
        name, session, this_run, entrepot_conn_id, deferrable, poke_interval: as for :class:`EntrepotObjectSensor`.
    """

    collection = True

    def __init__(self, *, members: int = 0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.members = members
