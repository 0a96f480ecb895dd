"""Answers the calls of the store's clients about collections (``entrepot._client.collection_calls``)."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from entrepot import raw_collections, raw_objects
from entrepot._client import collection_calls
from entrepot._collections.metadata import collection_key
from entrepot.errors import EntrepotError, ObjectNotFound
from entrepot.ids import ObjectID
from entrepot.origins import Role, origin_of

from entrepot_cluster.gateway import collection_requests
from entrepot_cluster.gateway.fetcher import LOOKUP_IDS

if TYPE_CHECKING:
    from entrepot import Store

    from entrepot_cluster.directory.model import Instance
    from entrepot_cluster.gateway.directory_access import DirectoryAccess
    from entrepot_cluster.gateway.peers import Peers
    from entrepot_cluster.gateway.publication import Publication

_PEERS_AT_ONCE = 16
MIN_SECONDS = 0.001


class CollectionCalls:
    """Answers calls. Thread-safe.

    Args:
        store: a connection to the store, in any session.
        directory: of the cluster.
        peers, publication: the gateway's parts.
        own_address: where other gateways reach this one.

    Attributes:
        operations: what answers each operation, given how many seconds its caller waits, and the request.
    """

    def __init__(
        self, store: Store, directory: DirectoryAccess, peers: Peers, publication: Publication, own_address: str
    ) -> None:
        self._store = store
        self._directory = directory
        self._peers = peers
        self._publication = publication
        self._own_address = own_address
        self._pool = ThreadPoolExecutor(_PEERS_AT_ONCE, thread_name_prefix="collections")
        self.operations: dict[str, Callable[[float, Any], Any]] = {
            collection_calls.LOCATE_MANY: self._locate_many,
            collection_calls.EXTENT: self._extent,
            collection_calls.DESCRIBE: self._describe,
            collection_calls.SPREAD: self._spread,
            collection_calls.DISCARD: self._discard,
            collection_calls.DELETE: self._delete,
        }

    def close(self) -> None:
        """Ask no further peers."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _locate_many(self, _seconds: float, oids: list[bytes]) -> list[list[Any]]:
        own = self._store.instance_id
        host = next((each.host for each in self._directory.instances() if each.id == own), self._store.host)
        places: list[list[Any]] = []
        for begin in range(0, len(oids), LOOKUP_IDS):
            part = oids[begin : begin + LOOKUP_IDS]
            for oid, published in zip(part, self._directory.get().places(part), strict=True):
                here = self._place_here(oid, host)
                others = [
                    [it.id, it.host, each.generation, each.nbytes, it.live, it.lost_since or 0.0]
                    for each in published.raise_damage()
                    if (it := each.instance).id != own
                ]
                places.append([*([] if here is None else [here]), *others])
        return places

    def _place_here(self, oid: bytes, host: str) -> list[Any] | None:
        object_id = ObjectID(oid)
        generation = raw_objects.generation_of(self._store, object_id)
        if generation is None:
            return None
        try:
            nbytes = raw_objects.size_of(self._store, object_id)
        except ObjectNotFound:
            return None  # deleted since
        return [self._store.instance_id, host, generation, nbytes, True, 0.0]

    def _extent(self, seconds: float, request: list[Any]) -> list[list[Any]]:
        return self._ask_all(self._request(collection_requests.EXTENT, *request), seconds)

    def _describe(self, seconds: float, request: list[Any]) -> list[list[Any]]:
        *collection, indexes, checksums = request
        return self._ask_all(
            self._request(collection_requests.DESCRIBE, *collection, indexes=indexes, checksums=checksums), seconds
        )

    def _discard(self, seconds: float, request: list[Any]) -> list[list[Any]]:
        *collection, members, digest = request
        return self._ask_all(
            self._request(collection_requests.DISCARD, *collection, members=members, digest=digest), seconds
        )

    def _delete(self, seconds: float, request: list[Any]) -> list[list[Any]]:
        """Delete a collection that was sealed or moved here elsewhere, too; a copy's original stays."""
        scope, session, name, digest = request
        oid = ObjectID.derive(scope, session, collection_key(name))
        origin = origin_of(self._store, oid, (scope, session))
        is_recorded = origin is not None and origin.generation == raw_objects.generation_of(self._store, oid)
        if origin is not None and is_recorded and origin.role != Role.PRIMARY:
            return []
        return self._discard(seconds, [scope, session, name, True, digest])

    def _spread(self, seconds: float, request: list[Any]) -> list[list[Any]]:
        """Have other stores adopt a collection that was sealed here, and publish it with the members that are here."""
        oid, name, digest, lives = request
        object_id = ObjectID(oid)
        sealed = raw_objects.read(self._store, object_id)
        contents = raw_collections.contents_in(sealed.tree, sealed.buffers)
        message = self._request(
            collection_requests.ADOPT,
            contents.scope,
            contents.session,
            name,
            oid=oid,
            generation=sealed.generation,
            digest=digest,
            address=self._own_address,
            instance=self._store.instance_id,
        )
        others = [each for each in self._others() if each.id in lives]
        answers = self._ask({each.id: {**message, "lives": lives[each.id]} for each in others}, others, seconds)
        gone = set(lives) - {each.id for each in others} - {self._store.instance_id}
        answers += [[instance, instance, None, *_packed(_left(name, instance))] for instance in sorted(gone)]
        if all(code is None for _, _, _, code, _ in answers):
            ids = [contents.id_of(position) for position in range(contents.count)]
            here = [each.binary for each in ids if raw_objects.generation_of(self._store, each) is not None]
            self._publication.publish(oid, *here)
        return answers

    @staticmethod
    def _request(ask: str, scope: str, session: str, name: str, **fields: Any) -> dict[str, Any]:
        return {"ask": ask, "scope": scope, "session": session, "name": name, **fields}

    def _others(self) -> list[Instance]:
        """The other stores: also those that have just joined, whose members must not be missed.

        When a directory is back after an outage, those that have not registered again yet count, too.
        """
        instances = self._directory.instances(fresh=True)
        own = self._store.instance_id
        return [each for each in instances if each.id != own and self._directory.may_be_live(each)]

    def _ask_all(self, request: dict[str, Any], seconds: float) -> list[list[Any]]:
        end = time.monotonic() + seconds
        others = self._others()
        return self._ask(dict.fromkeys([each.id for each in others], request), others, end - time.monotonic())

    def _ask(self, requests: dict[str, dict[str, Any]], instances: list[Instance], seconds: float) -> list[list[Any]]:
        """Send each of these instances its request.

        Returns:
            as ``entrepot._client.collection_calls.Answer``, with errors as code and message.
        """
        end = time.monotonic() + seconds

        def ask(instance: Instance) -> list[Any]:
            try:
                left = max(MIN_SECONDS, end - time.monotonic())
                value = self._peers.get(instance).collection(requests[instance.id], timeout=left)
            except EntrepotError as error:
                return [instance.id, instance.host, None, *_packed(error)]
            return [instance.id, instance.host, value, None, None]

        return list(self._pool.map(ask, instances))


def _packed(error: EntrepotError) -> tuple[str, str]:
    return error.code, error.message


def _left(name: str, instance: str) -> ObjectNotFound:
    return ObjectNotFound(
        f"instance {instance}, which had members of collection {name!r}, left the cluster while it was sealed"
    )
