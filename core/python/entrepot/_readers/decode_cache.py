"""Decoded tables in the store: found by name of content and options, decoded by one process while the others wait.

An entry::

    absent ──lock taken, decoded, sealed──▶ present ──memory short, or content replaced──▶ absent
       ▲                        │
       └──error, or death───────┘

A present entry is *dead* in the sense of eviction (:meth:`Store.consumed`): readable while there is room, the first to
go when there is none, and never written to disk, since the file is there already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from entrepot._client.queries import iter_objects, sessions_of
from entrepot._client.session import Session
from entrepot._codecs.encoding import decode_object, encode_item
from entrepot._readers.cache_key import SCOPE, SESSION, Entry
from entrepot._readers.decode_lock import DecodeLocks
from entrepot._readers.formats import joined
from entrepot.errors import ObjectLost, ObjectNotFound, StoreUnavailable, Timeout
from entrepot.ids import ObjectID

if TYPE_CHECKING:
    from entrepot import _core

AnyStore = Any  # an entrepot.Store, which is above this module

TTL_SECONDS = 3600  # of the cache's session, after the last process that reads files has closed its store
STAGE_BYTES = 64 << 20  # decoded bytes after which they move into the store
_PUT_WAIT_SECONDS = 30.0
# How long to wait for an entry before looking whether its decoder has died; also how long a death goes unnoticed.
_POLL_SECONDS = 0.05
_CONSUMER = "decoded"


class DecodeCache:
    """The cache as one store sees it. Thread-safe.

    Args:
        session: any session of the store, which stays open at least as long as this is used.
    """

    def __init__(self, session: Session) -> None:
        self._stores_session = session
        self._session = _open_session(session)  # replaced in one step if it is removed; the former closes itself
        self._locks = DecodeLocks(session.address)
        # Entries that this process knows to be dead, with the store and generation; a change is one step.
        self._marked: dict[ObjectID, tuple[int, int]] = {}

    def find(self, store: AnyStore, entry: Entry) -> Any:
        """Return the table if it is present; None: it is not."""
        return self._read(store, entry.id, 0.0)

    def decode(
        self,
        store: AnyStore,
        entry: Entry,
        parts: Callable[[], Iterator[Any]],
        confirm: Callable[[], None],
        timeout: float,
    ) -> Any:
        """Return the table, decoded here or by another process.

        Args:
            entry: its name.
            parts: decodes it; called if nobody else does.
            confirm: called before the table is sealed; raises if the content is no longer what ``entry`` says.
            timeout: seconds to wait for another decoder.

        Raises:
            Timeout: the other one took longer.
            StoreFull: the table does not fit.
            Anything that ``parts`` and ``confirm`` raise. Callers that waited then try as well.
        """
        deadline = time.monotonic() + timeout
        while True:
            lock = self._locks.try_acquire(entry.id)
            if lock is not None:
                with lock:
                    table = self.find(store, entry)  # sealed before we had the lock
                    return self._decode(store, entry, parts, confirm) if table is None else table
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise Timeout(
                    f"{entry.label} is still being decoded, by process {self._locks.holder_of(entry.id)}, after "
                    f"{timeout:g} s: let it continue if it is stopped (kill -CONT), or wait longer (timeout=)"
                )
            table = self._read(store, entry.id, min(_POLL_SECONDS, remaining))
            if table is not None:
                return table

    def close(self) -> None:
        """Close the cache's session. Idempotent."""
        self._session.close()

    # --- reading

    def _read(self, store: AnyStore, oid: ObjectID, timeout: float) -> Any:
        raw = self._session.raw()
        try:
            pinned = raw.get(oid.binary, timeout, True)
        except (ObjectNotFound, ObjectLost):
            return None
        except Timeout:
            if timeout == 0:  # it is the daemon that did not answer
                raise
            return None
        life = (raw.life, pinned.generation)
        if self._marked.get(oid) != life:  # its decoder may have died before it could do this, which may be repeated
            self._mark(oid)
            self._marked[oid] = life
        return self._decoded(store, pinned)

    def _decoded(self, store: AnyStore, pinned: _core.Object) -> Any:
        return decode_object(pinned, "never", 0, allow_pickle=False, store=store)

    def _mark(self, oid: ObjectID) -> None:
        self._session.raw().consumed([oid.binary], _CONSUMER)

    # --- decoding

    def _decode(
        self, store: AnyStore, entry: Entry, parts: Callable[[], Iterator[Any]], confirm: Callable[[], None]
    ) -> Any:
        if not _exists(self._session.raw()):  # removed with all that was cached, by a user or a cleanup
            self._session = _open_session(self._stores_session)
        self._delete_former(entry)
        staged: list[ObjectID] = []
        try:
            table = self._stage(store, parts, staged)
            confirm()
            self._put(table, entry.id, entry.name)
            # Pinned first, because it may be dropped as soon as it is marked. If it is gone even so, somebody else has
            # deleted it as former content; the table at hand is right all the same.
            stored = self._read(store, entry.id, 0.0)
            return table if stored is None else stored
        finally:
            if staged:
                self._session.raw().delete([oid.binary for oid in staged])

    def _stage(self, store: AnyStore, parts: Callable[[], Iterator[Any]], staged: list[ObjectID]) -> Any:
        """Decode, moving every STAGE_BYTES into the store, and return the whole table.

        The objects in ``staged`` hold the moved parts, and the table refers to them. The put of the table therefore
        writes only what is not in them: this process's own memory holds one stage at a time.
        """
        moved: list[Any] = []
        pending: list[Any] = []
        nbytes = 0
        with store.allocating():
            for part in parts():
                pending.append(part)
                nbytes += part.nbytes
                del part  # nothing else may refer to it while the next one is decoded
                if nbytes >= STAGE_BYTES:
                    moved.append(self._move(store, pending, staged))
                    pending, nbytes = [], 0
        return joined(moved + pending)

    def _move(self, store: AnyStore, pending: list[Any], staged: list[ObjectID]) -> Any:
        oid = ObjectID.random()
        self._put(joined(pending), oid, "")
        staged.append(oid)
        pinned = self._session.raw().get(oid.binary, 0.0)
        self._mark(oid)  # so that no copy is written to disk
        return self._decoded(store, pinned)

    def _put(self, table: Any, oid: ObjectID, name: str) -> None:
        item = encode_item(table, oid, False, self._session.number, name, True, allow_pickle=False)
        self._session.raw().put([(*item[:7], 0, 1)], _PUT_WAIT_SECONDS)

    def _delete_former(self, entry: Entry) -> None:
        former = [
            ObjectID(record["id"]).binary
            for record in iter_objects(self._session.raw(), self._session.number, entry.siblings)
            if not all(entry.has_content_of(name) for name in record["names"])
        ]
        if former:
            self._session.raw().delete(former)


def _exists(client: _core.Client) -> bool:
    return any(info.session == SESSION for info in sessions_of(client, SCOPE))


def _open_session(session: Session) -> Session:
    client = session.client
    if session.closed or not client.acquire():
        raise StoreUnavailable("this store was closed by close(): connect again")
    try:
        limits = None if _exists(client.raw) else (TTL_SECONDS, 0, 0)  # its users may have changed those that it has
    except BaseException:
        client.release(None)
        raise
    return Session(client, session.address, SCOPE, SESSION, False, limits)
