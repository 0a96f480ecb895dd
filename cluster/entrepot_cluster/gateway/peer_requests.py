"""What the gateway does for its peers beside sending objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from entrepot import raw_objects
from entrepot.errors import EntrepotError, ObjectNotFound
from entrepot.ids import ObjectID
from entrepot.origins import Life, Role

from entrepot_cluster.transport.endpoints import Held, Wanted

if TYPE_CHECKING:
    from entrepot import Store

    from entrepot_cluster.gateway.collection_requests import CollectionRequests
    from entrepot_cluster.gateway.fetcher import Fetcher
    from entrepot_cluster.gateway.moving_objects import MovingObjects
    from entrepot_cluster.gateway.object_source import StoreObjects
    from entrepot_cluster.gateway.peers import Peers
    from entrepot_cluster.gateway.publication import Publication
    from entrepot_cluster.gateway.streams.home_requests import HomeRequests


class PeerRequests:
    """See :class:`~entrepot_cluster.transport.endpoints.GatewayRequests`. Thread-safe.

    Args:
        store: a connection to the store, in any session.
        fetcher, peers, publication, moving, source, streams, collections: the gateway's parts.
    """

    def __init__(
        self,
        store: Store,
        fetcher: Fetcher,
        peers: Peers,
        publication: Publication,
        moving: MovingObjects,
        source: StoreObjects,
        streams: HomeRequests,
        collections: CollectionRequests,
    ) -> None:
        self._store = store
        self._fetcher = fetcher
        self._peers = peers
        self._publication = publication
        self._moving = moving
        self._source = source
        self._streams = streams
        self._collections = collections

    def stream(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request about a stream of the store."""
        return self._streams.answer(request)

    def have(self, wanted: Sequence[Wanted]) -> list[Held | None]:
        """Say which of these objects are here."""
        return [self._held(item) for item in wanted]

    def pull(self, wanted: Sequence[Wanted], address: str, instance: str) -> list[EntrepotError | None]:
        """Fetch objects that are to be moved here, and publish them: their sender deletes them then."""
        return self._fetch(wanted, address, instance, Role.PRIMARY)

    def replicate(self, wanted: Sequence[Wanted], address: str, instance: str) -> list[EntrepotError | None]:
        """Fetch copies of objects that stay where they are, and publish them."""
        return self._fetch(wanted, address, instance, Role.REPLICA)

    def _fetch(self, wanted: Sequence[Wanted], address: str, instance: str, role: Role) -> list[EntrepotError | None]:
        raw_objects.check_generation_deletes(self._store)  # what fails halfway is deleted again
        errors: dict[bytes, EntrepotError | None] = {item.id: self._moving.refusal(item.id) for item in wanted}
        allowed = [item for item in wanted if errors[item.id] is None]
        fetched = self._fetcher.pull(allowed, self._peers.at(address, instance), role)
        for item, error in zip(allowed, fetched, strict=True):
            errors[item.id] = error or self._published(item.id)
        return [errors[item.id] for item in wanted]

    def _published(self, oid: bytes) -> EntrepotError | None:
        try:
            self._publication.publish(oid)
        except EntrepotError as error:
            return error
        return None

    def discard(self, wanted: Sequence[Wanted]) -> list[bool]:
        """Delete objects from the store."""
        discarded = []
        for item in wanted:
            oid = ObjectID(item.id)
            held = self._held(item)
            discarded.append(held is not None and raw_objects.discard_generation(self._store, oid, held.generation))
        return discarded

    def collection(self, request: dict[str, Any]) -> Any:
        """Answer a question about a collection."""
        return self._collections.answer(request)

    def discard_copies(self, lives: Sequence[Wanted], instance: str, role: int) -> list[bool]:
        """Delete copies that were made for another store."""
        return [self._discard_copy(item, instance, role) for item in lives]

    def _discard_copy(self, item: Wanted, instance: str, role: int) -> bool:
        oid = ObjectID(item.id)
        generation = raw_objects.generation_of(self._store, oid)
        if generation is None or item.generation is None:
            return False
        try:
            belonging = self._source.look_up(oid)
        except ObjectNotFound:
            return False  # deleted since
        origin = self._source.origin(oid, generation, belonging.scope, belonging.session)
        if origin is None or origin.role != role or Life(instance, item.generation) not in origin.lives:
            return False
        return raw_objects.discard_generation(self._store, oid, generation)

    def _held(self, item: Wanted) -> Held | None:
        oid = ObjectID(item.id)
        generation = raw_objects.generation_of(self._store, oid)
        if generation is None or item.generation not in (None, generation):
            return None
        try:
            return Held(generation, raw_objects.size_of(self._store, oid))
        except EntrepotError:
            return None  # deleted since
