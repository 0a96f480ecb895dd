"""Which store is the home of a stream.

A home has a small named object for each of its streams, which is published like other named objects. A store becomes a
home in two steps, because what several stores publish at the same time becomes visible in any order::

    none ──claims it──▶ claiming ──no other claims it, and none is its home──▶ home ──forget()──▶ none
                           └──another one is its home, or has claimed it earlier──▶ none

Whoever claims a stream publishes that first and looks for others afterwards, so of two that claim it at the same time,
at least one sees the other. The later one gives way; the earlier one waits until it has, or until it has become the
home, because it did not see the claim before its own.
"""

from __future__ import annotations

import hashlib
import threading
import time
from typing import TYPE_CHECKING, NamedTuple

from entrepot import raw_objects
from entrepot._client.arguments import NAME_MAX_BYTES
from entrepot.errors import InstanceLost, ObjectNotFound, Timeout
from entrepot.ids import ObjectID

from entrepot_cluster.gateway.fetcher import describe_lost, find_instance

if TYPE_CHECKING:
    from entrepot_cluster.directory.model import Instance, NameBinding
    from entrepot_cluster.gateway.directory_access import DirectoryAccess
    from entrepot_cluster.gateway.publication import Publication
    from entrepot_cluster.gateway.published import NameKey
    from entrepot_cluster.gateway.session_stores import SessionStores

CLAIM_SECONDS = 30.0
_PAUSE_SECONDS = 0.02
_PREFIX = "stream:"  # of the names of these objects
_CLAIM_PREFIX = "stream-claim:"
_CONTENT = b"the home of a stream of the cluster"


class StreamKey(NamedTuple):
    """Scope, session and name of a stream."""

    scope: str
    session: str
    name: str

    @property
    def record_name(self) -> str:
        """Name of the object that its home has."""
        return _prefixed(_PREFIX, self.name)

    @property
    def claim(self) -> NameKey:
        """What a store publishes that claims it."""
        return self.scope, self.session, _prefixed(_CLAIM_PREFIX, self.name)

    @property
    def record_id(self) -> ObjectID:
        """Its ID."""
        return ObjectID.derive(self.scope, self.session, self.record_name)


def _prefixed(prefix: str, name: str) -> str:
    if len(prefix) + len(name.encode()) <= NAME_MAX_BYTES:
        return prefix + name
    return prefix + hashlib.sha256(name.encode()).hexdigest()


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
        self._changing = threading.Lock()  # held while this store becomes a home, or ceases to be one

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
            back = find_instance(self._directory, lambda each: each.id == lost[0].id and each.live)
            if back is not None:  # just now
                return self._other(back)
            raise InstanceLost(
                f"stream {key.name!r} was in the store of {describe_lost(lost[0])}: what was in it is lost; start the "
                "tasks anew, with another name or replace=True"
            )
        if not create:
            raise ObjectNotFound(f"no store of the cluster has a stream {key.name!r} in this session")
        with self._changing:
            return self._claim(key)

    def _claim(self, key: StreamKey) -> Instance | None:
        """Become the home, unless another store is, or is about to be; returns that."""
        end = time.monotonic() + CLAIM_SECONDS
        claim = key.claim
        while time.monotonic() < end:
            try:
                self._publication.hold_name(claim)
                while time.monotonic() < end:
                    claims = self._entries(claim)  # before the homes: whoever becomes one drops its claim afterwards
                    live, _ = self._look_up(key)
                    if live:
                        return self._other(live[0])
                    own = next((entry.sequence for entry in claims if entry.instance.id == self._instance), None)
                    others = [entry.sequence for entry in claims if entry.instance.id != self._instance]
                    if own is None or any(sequence < own for sequence in others):
                        break
                    if not others:
                        self._become(key)
                        return None
                    time.sleep(_PAUSE_SECONDS)
            finally:
                self._publication.drop_name(claim)
            time.sleep(_PAUSE_SECONDS)
        raise Timeout(f"other stores have claimed stream {key.name!r} for {CLAIM_SECONDS:g} s: try again")

    def _become(self, key: StreamKey) -> None:
        store = self._sessions.get(key.scope, key.session)
        raw_objects.put_record(store, key.record_id, _CONTENT, name=key.record_name)
        try:
            self._publication.publish(key.record_id.binary)
        except BaseException:
            raw_objects.discard(store, key.record_id)
            raise

    def forget(self, key: StreamKey) -> None:
        """This store is not the home of this stream any more."""
        with self._changing:
            raw_objects.discard(self._sessions.get(key.scope, key.session), key.record_id)

    def _look_up(self, key: StreamKey) -> tuple[list[Instance], list[Instance]]:
        """The live and the lost ones of the stores that have published the stream, each the first one first."""
        publishers = [entry.instance for entry in self._entries((key.scope, key.session, key.record_name), lost=True)]
        # What the directory says about this store may be a moment old
        others = [each for each in publishers if each.id != self._instance or self.is_home(key)]
        live = [each for each in others if self._directory.may_be_live(each)]
        return live, [each for each in others if each not in live]

    def _entries(self, name: NameKey, *, lost: bool = False) -> list[NameBinding]:
        """Who has published a name, the first one first."""
        entries = sorted(self._directory.get().lookup_name(*name).raise_damage(), key=lambda entry: entry.sequence)
        return [entry for entry in entries if lost or self._directory.may_be_live(entry.instance)]

    def is_home(self, key: StreamKey) -> bool:
        """Whether this store is the home of a stream now."""
        store = self._sessions.get(key.scope, key.session)
        return raw_objects.generation_of(store, key.record_id) is not None

    def _other(self, instance: Instance) -> Instance | None:
        return None if instance.id == self._instance else instance
