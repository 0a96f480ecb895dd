"""Interface of the store that services need; :class:`entrepot.Store` implements it."""

from __future__ import annotations

from typing import Any, Protocol

from entrepot._client.arguments import AnyID
from entrepot._collections.store_access import CollectionStore
from entrepot._streams.store_access import StreamStore
from entrepot.ids import ObjectID


class ServiceStore(CollectionStore, StreamStore, Protocol):
    """The methods of ``Store`` of the same names; its own modules may call those that begin with an underscore."""

    def put(self, value: Any, *, id: AnyID | None = None) -> ObjectID: ...
