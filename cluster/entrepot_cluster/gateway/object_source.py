"""The store's objects, as the gateway's server sends them to peers."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from entrepot.ids import ObjectID
from entrepot.origins import Life, Origin, origin_of

from entrepot_cluster.gateway.envelope import Envelope
from entrepot_cluster.gateway.session_terms import SessionTerms
from entrepot_cluster.transport.endpoints import Wanted
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
        with self._lock:
            belonging = self._places.get((oid, opened.generation))
        self._wrap(oid, opened, belonging or self.look_up(ObjectID(oid)), {})
        return opened

    def open_present(self, wanted: Sequence[Wanted]) -> list[PinnedObject | None]:
        """Pin what is in memory; see :class:`~entrepot_cluster.transport.endpoints.ObjectSource`.

        What the daemon has to be asked about, or is a copy that is just being made, is left to :meth:`open`.
        """
        present = self._objects.open_present(wanted)
        with self._lock:
            belongings = [
                None if opened is None else self._places.get((item.id, opened.generation))
                for item, opened in zip(wanted, present, strict=True)
            ]
        terms: dict[tuple[str, str], tuple[int, int]] = {}
        for index, (item, opened, belonging) in enumerate(zip(wanted, present, belongings, strict=True)):
            if opened is None:
                continue
            if belonging is None or item.id in self._unrecorded:
                opened.close()
                present[index] = None
            else:
                self._wrap(item.id, opened, belonging, terms)
        return present

    def _wrap(
        self, oid: bytes, opened: PinnedObject, belonging: Belonging, terms: dict[tuple[str, str], tuple[int, int]]
    ) -> None:
        """Put what travels with an object around its tree; ``terms``: of the sessions seen so far."""
        scope, session, names = belonging
        origin = self.origin(ObjectID(oid), opened.generation, scope, session)
        here = Life(self._store.instance_id, opened.generation)
        lives = (here,) if origin is None else (*origin.lives, here)
        place = (scope, session)
        if place not in terms:
            terms[place] = (self.terms.ttl_seconds(*place), self.terms.replicas(*place))
        ttl_seconds, replicas = terms[place]
        if origin is not None:
            replicas = origin.replicas
        opened.tree = Envelope(scope, session, names, lives, opened.tree, ttl_seconds, replicas).pack()

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
