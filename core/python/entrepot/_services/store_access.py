"""Interface of the store that services need; :class:`entrepot.Store` implements it."""

from __future__ import annotations

from typing import Any, Protocol

from entrepot._client.arguments import AnyID
from entrepot._client.locality import LocalitySet, Reading, Writing
from entrepot._client.locality_sets import LocalitySetOrName
from entrepot._codecs.blob import BlobWriter
from entrepot._collections.store_access import CollectionStore
from entrepot._streams.store_access import StreamStore
from entrepot.ids import ObjectID


class ServiceStore(CollectionStore, StreamStore, Protocol):
    """The methods of ``Store`` of the same names; its own modules may call those that begin with an underscore."""

    @property
    def address(self) -> str: ...
    def put(
        self,
        value: Any,
        *,
        id: AnyID | None = None,
        name: str | None = None,
        locality_set: LocalitySetOrName | None = None,
        consumers: int | None = None,
    ) -> ObjectID: ...
    def create(self, nbytes: int, *, id: AnyID | None = None) -> BlobWriter: ...
    def resolve(self, name: str, *, timeout: float | None = 0) -> ObjectID: ...
    def consumed(self, oid: AnyID, consumer: str) -> int: ...
    def hint(self, target: AnyID, *, locality_set: LocalitySetOrName | None = None) -> None: ...
    def locality_set(
        self, name: str, *, reading: Reading | None = None, writing: Writing | None = None, priority: int | None = None
    ) -> LocalitySet: ...
