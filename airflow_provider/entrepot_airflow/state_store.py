"""Backend for the state that tasks keep between attempts, and assets between runs (Airflow 3.3 and newer).

    AIRFLOW__WORKERS__STATE_STORE_BACKEND=entrepot_airflow.state_store.EntrepotStateStoreBackend

Large states go to the store, in a session for each task instance or asset, and Airflow's database keeps their names.
Small ones stay in the database. A state is JSON, so it is kept as text, and nothing is pickled.
"""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.state import AssetScope, BaseStoreBackend, TaskScope
from entrepot.errors import InvalidReference, ObjectLost, ObjectNotFound
from entrepot_io.connections import scope_store, session_store
from entrepot_io.sessions import run_session
from entrepot_io.values import get_by_key, put_value

from entrepot_airflow.configuration import current_settings, default_scope

if TYPE_CHECKING:
    from entrepot import Store

SESSIONS = "airflow-state"  # first part of the names of the sessions
MARK = "entrepot-state:"  # before what the database keeps in place of a state
RETENTION_SECONDS = 30 * 86_400.0  # after the last use of a task's state; Airflow's default_retention_days
FOREVER = 0.0  # an asset's state has no run that it could end with


class EntrepotStateStoreBackend(BaseStoreBackend):
    """Keeps large states in the store; set it as ``[workers] state_store_backend``."""

    def serialize_task_state_store_to_ref(self, *, value: Any, key: str, scope: TaskScope) -> str:
        """Return what the database keeps for a task's state: the state as JSON, or the name of an object.

        Raises:
            StoreFull: the state does not fit.
            StoreUnavailable: the store cannot be reached.
        """
        return self._serialize(value, key, scope)

    def deserialize_task_state_store_from_ref(self, stored: str) -> Any:
        """Return the state that the database has this for.

        Raises:
            ObjectLost: the object is gone.
            InvalidReference: this was changed in the database.
            StoreUnavailable: the store cannot be reached.
        """
        return self._deserialize(stored)

    def serialize_asset_state_store_to_ref(self, *, value: Any, key: str, scope: AssetScope) -> str:
        """As for a task's state."""
        return self._serialize(value, key, scope)

    def deserialize_asset_state_store_from_ref(self, stored: str) -> Any:
        """As for a task's state."""
        return self._deserialize(stored)

    def get(self, scope: TaskScope | AssetScope, key: str, *, session: Any = None) -> str | None:
        """Return a state as JSON; None: there is none."""
        place = current_settings().scope or default_scope()
        try:
            return _read(place, _session_name(scope), key)
        except ObjectNotFound:
            return None

    def set(
        self,
        scope: TaskScope | AssetScope,
        key: str,
        value: str,
        *,
        expires_at: datetime | None = None,
        session: Any = None,
    ) -> None:
        """Write a state, as JSON."""
        _write(scope, key, value)

    def delete(self, scope: TaskScope | AssetScope, key: str, *, session: Any = None) -> None:
        """Delete a state; one that does not exist, or is in the database, is ignored."""
        store = _open(scope)
        store.delete(store.derive(key))

    def clear(self, scope: TaskScope | AssetScope, *, all_map_indices: bool = False, session: Any = None) -> None:
        """Delete all states of a task instance (or of all instances of its task), or of an asset."""
        settings = current_settings()
        of_scope = scope_store(settings.address, settings.scope or default_scope())
        name = _session_name(scope)
        prefix = name.rpartition("/")[0] + "/" if all_map_indices and isinstance(scope, TaskScope) else None
        for each in of_scope.sessions():
            if each.session == name or (prefix is not None and each.session.startswith(prefix)):
                try:
                    of_scope.remove_session(each.session)
                except ObjectNotFound:  # it has expired since
                    continue

    async def aget(self, scope: TaskScope | AssetScope, key: str, *, session: Any = None) -> str | None:
        """As ``get``."""
        return await asyncio.to_thread(self.get, scope, key)

    async def aset(
        self,
        scope: TaskScope | AssetScope,
        key: str,
        value: str,
        *,
        expires_at: datetime | None = None,
        session: Any = None,
    ) -> None:
        """As ``set``."""
        await asyncio.to_thread(self.set, scope, key, value, expires_at=expires_at)

    async def adelete(self, scope: TaskScope | AssetScope, key: str, *, session: Any = None) -> None:
        """As ``delete``."""
        await asyncio.to_thread(self.delete, scope, key)

    async def aclear(
        self, scope: TaskScope | AssetScope, *, all_map_indices: bool = False, session: Any = None
    ) -> None:
        """As ``clear``."""
        await asyncio.to_thread(self.clear, scope, all_map_indices=all_map_indices)

    @staticmethod
    def _serialize(value: Any, key: str, scope: TaskScope | AssetScope) -> str:
        text = json.dumps(value)
        if len(text.encode()) < current_settings().inline_below:
            return text
        store = _write(scope, key, text)
        return MARK + json.dumps([store.scope, store.session_name, key])

    @staticmethod
    def _deserialize(stored: str) -> Any:
        if not stored.startswith(MARK):
            return json.loads(stored)
        try:
            place, session, key = json.loads(stored.removeprefix(MARK))
        except ValueError:
            raise InvalidReference(f"the state's entry in Airflow's database is damaged: {stored[:200]!r}") from None
        try:
            return json.loads(_read(place, session, key))
        except ObjectNotFound as error:
            raise ObjectLost(
                f"the state {key!r} of session {session!r} is no longer in the store of this host: the store was lost, "
                "or it was written on another host (with ENTREPOT_DURABLE, states survive that); delete the key, or "
                f"write it again: {error}"
            ) from error


def _write(scope: TaskScope | AssetScope, key: str, text: str) -> Store:
    store = _open(scope)
    reference = put_value(store, key, text)
    if store.durable is not None:
        store.make_durable(reference.id)
    return store


def _read(place: str, session: str, key: str) -> str:
    store = session_store(current_settings().address, place, session, None)
    text: str = get_by_key(store, key)
    return text


def _open(scope: TaskScope | AssetScope) -> Store:
    settings = current_settings()
    ttl = RETENTION_SECONDS if isinstance(scope, TaskScope) else FOREVER
    return session_store(settings.address, settings.scope or default_scope(), _session_name(scope), ttl)


def _session_name(scope: TaskScope | AssetScope) -> str:
    if isinstance(scope, TaskScope):
        return run_session(SESSIONS, scope.dag_id, scope.run_id, scope.task_id, str(scope.map_index))
    return run_session(SESSIONS, "asset", scope.name or scope.uri or str(scope.asset_id))
