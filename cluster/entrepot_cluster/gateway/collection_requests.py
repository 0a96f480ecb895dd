"""What the gateway answers to its peers about collections that are built on several hosts.

Requests and answers are plain values; every request has ``ask`` and says which collection it is about by ``scope``,
``session`` and ``name``:

| ``ask`` | further fields | answer |
|---|---|---|
| ``extent`` | | one more than the highest index of a member here; 0: there is none |
| ``describe`` | ``indexes``, ``checksums`` | the members here at these indexes, as ``pack_descriptions`` has them |
| ``adopt`` | ``oid``, ``generation``, ``digest``, ``lives``, ``address``, ``instance`` | nil: it is here now |
| ``discard`` | ``members``, ``digest`` (or nil) | how many members were deleted |
| ``losses`` | ``objects`` | see :class:`~entrepot_cluster.gateway.loss_marks.LossMarks`; of any objects |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from entrepot import raw_collections, raw_objects
from entrepot._client.queries import session_number
from entrepot._collections.member_search import (
    describe_members,
    find_members,
    lives_digest,
    pack_descriptions,
)
from entrepot._collections.members import delete_all
from entrepot._collections.metadata import Contents, collection_key
from entrepot.errors import CorruptData, ObjectExists, ObjectNotFound, VersionMismatch
from entrepot.ids import ObjectID

from entrepot_cluster.gateway.loss_marks import LOSSES
from entrepot_cluster.gateway.object_sink import StoreSink
from entrepot_cluster.gateway.receiving import receive
from entrepot_cluster.transport.endpoints import Wanted
from entrepot_cluster.transport.frames import field

if TYPE_CHECKING:
    from entrepot import Store

    from entrepot_cluster.gateway.loss_marks import LossMarks
    from entrepot_cluster.gateway.peers import Peers
    from entrepot_cluster.gateway.publication import Publication
    from entrepot_cluster.gateway.session_stores import SessionStores
    from entrepot_cluster.gateway.unrecorded_copies import UnrecordedCopies

EXTENT = "extent"
DESCRIBE = "describe"
ADOPT = "adopt"
DISCARD = "discard"


class CollectionRequests:
    """Answers requests. Thread-safe.

    Args:
        store: a connection to the store, in any session.
        sessions: connections to its sessions.
        peers, publication, unrecorded: the gateway's parts.
    """

    def __init__(
        self,
        store: Store,
        sessions: SessionStores,
        peers: Peers,
        publication: Publication,
        unrecorded: UnrecordedCopies,
        losses: LossMarks,
    ) -> None:
        self._losses = losses
        self._store = store
        self._sessions = sessions
        self._peers = peers
        self._publication = publication
        self._unrecorded = unrecorded
        self._answers: dict[str, Callable[[dict[str, Any], str, str, str], Any]] = {
            EXTENT: self._extent,
            DESCRIBE: self._describe,
            ADOPT: self._adopt,
            DISCARD: self._discard,
            LOSSES: self._lost,
        }

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer a request.

        Raises:
            CorruptData: it cannot be read.
            VersionMismatch: this gateway does not know it.
            EntrepotError: the answer is this error.
        """
        asked = field(request, "ask", str)
        answer = self._answers.get(asked)
        if answer is None:
            raise VersionMismatch(
                f"the gateway of host {self._store.host} does not know the request {asked!r} about a collection: "
                "run the same release of Entrepot on all hosts of a cluster"
            )
        return answer(request, *(field(request, key, str) for key in ("scope", "session", "name")))

    def _lost(self, request: dict[str, Any], _scope: str, _session: str, _name: str) -> list[Any]:
        return self._losses.answer(field(request, "objects", list))

    def _extent(self, _request: dict[str, Any], scope: str, session: str, name: str) -> int:
        return max(self._members(scope, session, name), default=-1) + 1

    def _describe(self, request: dict[str, Any], scope: str, session: str, name: str) -> list[Any]:
        indexes = field(request, "indexes", list)
        if not all(type(index) is int and index >= 0 for index in indexes):
            raise CorruptData("a peer asked for members of a collection at indexes that are not numbers of 0 or more")
        raw = self._store._raw()  # pyright: ignore[reportPrivateUsage]
        checksums = field(request, "checksums", bool)
        return pack_descriptions(describe_members(raw, scope, session, name, indexes, checksums=checksums))

    def _adopt(self, request: dict[str, Any], scope: str, session: str, name: str) -> None:
        """Fetch a collection that was sealed elsewhere with members that are here, and publish these."""
        oid = ObjectID(field(request, "oid", bytes))
        store = self._sessions.get(scope, session)
        peer = self._peers.at(field(request, "address", str), field(request, "instance", str))
        wanted = Wanted(oid.binary, field(request, "generation", int))
        had = raw_objects.generation_of(store, oid)
        (error,) = receive(peer, [wanted], StoreSink(self._sessions, self._unrecorded))
        if error is not None:
            raise error
        contents = self._contents(store, oid)
        if contents.digest() != field(request, "digest", bytes):
            raise ObjectExists(
                f"collection {name!r} is already sealed with other members in the store of host {self._store.host}: "
                "discard() it first, or build a collection with another name"
            )
        members = self._lives(store, contents)
        try:
            if lives_digest(members) != field(request, "lives", bytes):
                raise ObjectNotFound(
                    f"members of collection {name!r} in the store of host {self._store.host} were replaced or deleted "
                    "while it was sealed"
                )
            store.set_name(name, oid)
        except (ObjectExists, ObjectNotFound):
            if had is None:
                raw_objects.discard(store, oid)
            raise
        self._publication.publish(oid.binary, *(member for member, _ in members))

    def _discard(self, request: dict[str, Any], scope: str, session: str, name: str) -> int:
        raw, digest = self._store._raw(), request.get("digest")  # pyright: ignore[reportPrivateUsage]
        oid = ObjectID.derive(scope, session, collection_key(name))
        if raw_objects.generation_of(self._store, oid) is not None:
            if digest is not None and self._contents(self._store, oid).digest() != digest:
                return 0  # another one of that name, which keeps its members
            raw_objects.discard(self._store, oid)  # before its members: nobody finds one that lacks them
        members = self._members(scope, session, name) if field(request, "members", bool) else {}
        delete_all(raw, [member.binary for member in members.values()])
        return len(members)

    def _members(self, scope: str, session: str, name: str) -> dict[int, ObjectID]:
        raw = self._store._raw()  # pyright: ignore[reportPrivateUsage]
        try:
            number = session_number(raw, scope, session)
        except ObjectNotFound:
            return {}  # this store has no such session, and gets none by a question
        return find_members(raw, number, scope, session, name)

    @staticmethod
    def _contents(store: Store, oid: ObjectID) -> Contents:
        sealed = raw_objects.read(store, oid)
        return raw_collections.contents_in(sealed.tree, sealed.buffers)

    @staticmethod
    def _lives(store: Store, contents: Contents) -> list[tuple[bytes, int]]:
        """The members that are here, in order, with their generations."""
        ids = [contents.id_of(position) for position in range(contents.count)]
        generations = [raw_objects.generation_of(store, member_id) for member_id in ids]
        return [
            (member_id.binary, generation)
            for member_id, generation in zip(ids, generations, strict=True)
            if generation is not None
        ]
