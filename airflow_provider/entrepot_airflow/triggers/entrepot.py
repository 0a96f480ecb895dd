"""The trigger of deferred sensors: waits until a name is bound to an object."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent
from entrepot.errors import EntrepotError, StoreUnavailable

from entrepot_airflow.store_location import StoreLocation
from entrepot_airflow.waiting import is_there

_CLASS = "entrepot_airflow.triggers.entrepot.EntrepotTrigger"


class EntrepotTrigger(BaseTrigger):
    """Fires once an object, or a sealed collection, has a name.

    It looks at the store of the triggerer's host, at an interval: this costs microseconds, and no thread. A store that
    does not answer is waited for.

    Args:
        name: of the object, in the session.
        address, scope, session: of the session, as in ``StoreLocation``.
        collection: whether it has to be a collection.
        members: how many members the collection has to have at least.
        poke_interval: seconds.

    Fires with ``{"id": ...}``, or with ``{"error": ...}``, which the sensor raises.
    """

    def __init__(
        self,
        name: str,
        address: str | None,
        scope: str,
        session: str,
        collection: bool = False,
        members: int = 0,
        poke_interval: float = 1.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name = name
        self.location = StoreLocation(address, scope, session)
        self.collection = collection
        self.members = members
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """What Airflow's database keeps of it."""
        return _CLASS, {
            "name": self.name,
            "address": self.location.address,
            "scope": self.location.scope,
            "session": self.location.session,
            "collection": self.collection,
            "members": self.members,
            "poke_interval": self.poke_interval,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait."""
        was_there = True
        while True:
            try:
                # In a thread, as connecting to a store that stands still may take a while.
                oid = await asyncio.to_thread(is_there, self.location, self.name, self.collection, self.members)
            except StoreUnavailable as error:
                if was_there:
                    self.log.warning("Entrepot: waiting for the store: %s", error)
                was_there = False
            except EntrepotError as error:
                yield TriggerEvent({"error": str(error)})  # type: ignore[no-untyped-call]
                return
            else:
                was_there = True
                if oid is not None:
                    yield TriggerEvent({"id": oid})  # type: ignore[no-untyped-call]
                    return
            await asyncio.sleep(self.poke_interval)
