"""The store's objects, as the gateway's server sends them to peers."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from entrepot.ids import ObjectID
from entrepot.origins import Life, Origin, origin_of

from entrepot_cluster.gateway.envelope import Envelope
from entrepot_cluster.gateway.session_terms import SessionTerms
from entrepot_cluster.transport.store_endpoints import PinnedObject, StoreSource

if TYPE_CHECKING:
    from entrepot import Store

    from entrepot_cluster.gateway.unrecorded_copies import UnrecordedCopies

_MAX_REMEMBERED = 200_000
_MIN_FORGOTTEN = 1000


class Belonging(NamedTuple):
    """Where an object belongs: scope and session, and the names that are bound to it there."""

    scope: str
    session: str
    names: tuple[str, ...]


class StoreObjects:
    """Reads objects of a store, for peers. Thread-safe.

    Args:
        store: a connection to it, in any session.
        unrecorded: copies that are being made here.

    Attributes:
        terms: how long its sessions live, and how many copies they ask for.
    """

    def __init__(self, store: Store, unrecorded: UnrecordedCopies) -> None:
        self._store = store
        self._unrecorded = unrecorded
        self._objects = StoreSource(store)
        self.terms = SessionTerms(store)
        self._lock = threading.Lock()
        # By ID and generation, as noted; the oldest first; guarded by _lock
        self._places: OrderedDict[tuple[bytes, int], Belonging] = OrderedDict()

    def note(self, oid: bytes, generation: int, belonging: Belonging) -> None:
        """Remember where an object belongs, so that the daemon need not be asked."""
        with self._lock:
            self._places[oid, generation] = belonging
            while len(self._places) > _MAX_REMEMBERED:
                self._places.popitem(last=False)

    def forget_all_but(self, objects: Mapping[bytes, tuple[int, str, str]]) -> None:
        """Forget where objects belonged that are gone, if these are most of those that are remembered.

        Args:
            objects: what the store has, by ID; the generation comes first.
        """
        with self._lock:
            if len(self._places) > 2 * len(objects) + _MIN_FORGOTTEN:
                kept = ((key, place) for key, place in self._places.items() if objects.get(key[0], (0,))[0] == key[1])
                self._places = OrderedDict(kept)

    def open(self, oid: bytes, generation: int | None) -> PinnedObject:
        """Pin an object; see :class:`~entrepot_cluster.transport.endpoints.ObjectSource`."""
        opened = self._objects.open(oid, generation)
        object_id = ObjectID(oid)
        with self._lock:
            belonging = self._places.get((oid, opened.generation))
        if belonging is None:
            belonging = self.look_up(object_id)
        scope, session, names = belonging
        origin = self.origin(object_id, opened.generation, scope, session)
        here = Life(self._store.instance_id, opened.generation)
        lives = (here,) if origin is None else (*origin.lives, here)
        replicas = self.terms.replicas(scope, session) if origin is None else origin.replicas
        ttl_seconds = self.terms.ttl_seconds(scope, session)
        opened.tree = Envelope(scope, session, names, lives, opened.tree, ttl_seconds, replicas).pack()
        return opened

    def origin(self, oid: ObjectID, generation: int, scope: str, session: str) -> Origin | None:
        """Return of which lives this generation of an object is a copy; None: it is none.

        Raises:
            StoreUnavailable: it is a copy that is being made, and the store does not take the record of its origin.
        """
        self._unrecorded.wait(oid.binary)
        origin = origin_of(self._store, oid, (scope, session))
        is_copy = origin is not None and origin.generation == generation and bool(origin.lives)
        return origin if is_copy else None

    def look_up(self, oid: ObjectID) -> Belonging:
        """Ask the daemon where an object belongs, and remember that.

        Raises:
            ObjectNotFound: it is not in the store.
        """
        raw = json.loads(self._store._raw().info(oid.binary))  # pyright: ignore[reportPrivateUsage]
        belonging = Belonging(raw["scope"], raw["session"], tuple(raw["names"]))
        self.note(oid.binary, raw["generation"], belonging)
        return belonging
