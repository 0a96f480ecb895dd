"""Which store is the home of a stream: the one that published it first, of those that are live.

A home has a small named object for each of its streams, which is published like other named objects. The directory's
order of publications decides if two stores create a stream at the same time; the later one deletes its object again.
"""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, NamedTuple

from entrepot import raw_objects
from entrepot._client.arguments import NAME_MAX_BYTES
from entrepot.errors import InstanceLost, ObjectNotFound
from entrepot.ids import ObjectID

from entrepot_cluster.gateway.fetcher import describe_lost

if TYPE_CHECKING:
    from entrepot_cluster.directory.model import Instance
    from entrepot_cluster.gateway.directory_access import DirectoryAccess
    from entrepot_cluster.gateway.publication import Publication
    from entrepot_cluster.gateway.session_stores import SessionStores

_PREFIX = "stream:"  # of the names of these objects
_CONTENT = b"the home of a stream of the cluster"


class StreamKey(NamedTuple):
    """Scope, session and name of a stream."""

    scope: str
    session: str
    name: str

    @property
    def record_name(self) -> str:
        """Name of the object that its home has."""
        name = _PREFIX + self.name
        if len(name.encode()) <= NAME_MAX_BYTES:
            return name
        return _PREFIX + hashlib.sha256(self.name.encode()).hexdigest()

    @property
    def record_id(self) -> ObjectID:
        """Its ID."""
        return ObjectID.derive(self.scope, self.session, self.record_name)


class StreamHomes:
    """Finds homes, and makes this store one. Thread-safe.

    Args:
        instance: this store's.
        sessions: connections to this store's sessions.
        directory: of the cluster.
        publication: publishes what this store is the home of.
    """

    def __init__(
        self, instance: str, sessions: SessionStores, directory: DirectoryAccess, publication: Publication
    ) -> None:
        self._instance = instance
        self._sessions = sessions
        self._directory = directory
        self._publication = publication
        self._changing = threading.Lock()  # held while a record is made or deleted

    def find(self, key: StreamKey, *, create: bool, replace: bool) -> Instance | None:
        """Find the home of a stream; if there is none, this store becomes it.

        Args:
            key: the stream.
            create: whether to, if there is none.
            replace: whether to, if it is lost.

        Returns:
            the home; None: this store.

        Raises:
            ObjectNotFound: there is none, and ``create`` is False.
            InstanceLost: it is lost, and ``replace`` is False.
            DirectoryUnavailable: the directory does not answer.
        """
        live, lost = self._look_up(key)
        if live:
            return self._other(live[0])
        if lost and not replace:
            raise InstanceLost(
                f"stream {key.name!r} was in the store of {describe_lost(lost[0])}: what was in it is lost; start the "
                "tasks anew, with another name or replace=True"
            )
        if not create:
            raise ObjectNotFound(f"no store of the cluster has a stream {key.name!r} in this session")
        with self._changing:
            store = self._sessions.get(key.scope, key.session)
            raw_objects.put_record(store, key.record_id, _CONTENT, name=key.record_name)
            self._publication.publish(key.record_id.binary)
            live, _ = self._look_up(key)
            home = self._other(live[0]) if live else None
            if home is not None:  # it was faster
                raw_objects.discard(store, key.record_id)
            return home

    def forget(self, key: StreamKey) -> None:
        """This store is not the home of this stream any more."""
        with self._changing:
            raw_objects.discard(self._sessions.get(key.scope, key.session), key.record_id)

    def _look_up(self, key: StreamKey) -> tuple[list[Instance], list[Instance]]:
        """The live and the lost ones of the stores that have published the stream, each the first one first."""
        published = self._directory.get().lookup_name(*key._replace(name=key.record_name))
        found = [entry.instance for entry in sorted(published.raise_damage(), key=lambda entry: entry.sequence)]
        others = [each for each in found if each.id != self._instance or self._has_record(key)]
        live = [each for each in others if self._directory.may_be_live(each)]
        return live, [each for each in others if each not in live]

    def _has_record(self, key: StreamKey) -> bool:
        """What the directory says about this store may be a moment old."""
        store = self._sessions.get(key.scope, key.session)
        return raw_objects.generation_of(store, key.record_id) is not None

    def _other(self, instance: Instance) -> Instance | None:
        return None if instance.id == self._instance else instance
